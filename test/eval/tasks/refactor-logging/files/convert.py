"""Converts temperatures from Fahrenheit to Celsius: python3 convert.py FILE"""
import sys


def celsius(f):
    return round((f - 32) * 5 / 9, 1)


def main(name):
    print("reading " + name)
    done = 0
    with open(name) as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            try:
                value = float(line)
            except ValueError:
                print(f"line {number} left out: {line}")
                continue
            print(celsius(value))
            done += 1
    print(f"{done} values converted")


if __name__ == "__main__":
    main(sys.argv[1])
