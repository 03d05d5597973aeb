"""What shipping costs: python3 ship.py WEIGHT VALUE [express]"""
import sys


def cost(weight, value, express):
    if value >= 80 and not express:
        return 0.0
    amount = 4.5 + 0.75 * weight
    if weight >= 20:
        amount += 4.5
    if express:
        amount *= 2.5
    return amount


if __name__ == "__main__":
    print(f"{cost(float(sys.argv[1]), float(sys.argv[2]), 'express' in sys.argv[3:]):.2f}")
