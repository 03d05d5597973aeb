"""A small shop."""
import re

CURRENCY = "EUR"


class Price:
    """An amount in cents."""

    def __init__(self, cents):
        self.cents = cents

    def __add__(self, other):
        return Price(self.cents + other.cents)

    def __mul__(self, n):
        return Price(self.cents * n)

    def __str__(self):
        return f"{self.cents // 100}.{self.cents % 100:02d} {CURRENCY}"


def parse_price(text):
    m = re.fullmatch(r"(\d+)(?:\.(\d\d))?", text)
    if m is None:
        raise ValueError(f"no price: {text}")
    return Price(int(m[1]) * 100 + int(m[2] or 0))


class Stock:
    """What is there, and what it costs."""

    def __init__(self):
        self.things = {}

    def put(self, name, count, price):
        have, _ = self.things.get(name, (0, None))
        self.things[name] = (have + count, parse_price(price))

    def take(self, name, count):
        have, price = self.things.get(name, (0, None))
        if have < count:
            raise LookupError(f"only {have} of {name}")
        self.things[name] = (have - count, price)
        return price


class Order:
    """Things that somebody buys."""

    def __init__(self, stock):
        self.stock = stock
        self.total = Price(0)

    def add(self, name, count=1):
        self.total += self.stock.take(name, count) * count

    def __str__(self):
        return f"order of {self.total}"
