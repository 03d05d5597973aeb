"""Prints a configuration with all that it includes: python3 conf.py FILE"""
import os
import sys


def read(name):
    with open(name) as f:
        return [(name, line.rstrip("\n")) for line in f]


def show(name):
    pending = read(name)
    while pending:
        name, line = pending.pop(0)
        words = line.split()
        if len(words) == 2 and words[0] == "include":
            pending = read(os.path.join(os.path.dirname(name), words[1])) + pending
        else:
            print(line)


if __name__ == "__main__":
    show(sys.argv[1])
