"""Prints when a monthly subscription is due: python3 due.py START COUNT"""
import datetime
import sys


def due(start, count):
    """The first `count` days on which it is due."""
    days = []
    day = start
    for _ in range(count):
        days.append(day)
        day = day.replace(month=day.month + 1)
    return days


if __name__ == "__main__":
    for day in due(datetime.date.fromisoformat(sys.argv[1]), int(sys.argv[2])):
        print(day)
