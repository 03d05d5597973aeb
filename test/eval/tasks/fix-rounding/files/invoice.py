"""Prints the totals of orders: python3 invoice.py FILE"""
import json
import sys


def line_total(line):
    net = line["quantity"] * line["price"]
    return round(net * (1 + line["tax"]), 2)


def total(order):
    return sum(line_total(line) for line in order["lines"])


def main(name):
    with open(name) as f:
        orders = json.load(f)
    for order in orders:
        print(f"{order['id']} {total(order):.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
