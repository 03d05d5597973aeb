"""A shopping cart whose prices are in cents."""


class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, cents, count=1):
        if count < 1:
            raise ValueError("count must be at least 1")
        self.items.append((name, cents, count))

    def total(self, discount_percent=0):
        """The price of all items, less a discount, in whole cents."""
        cents = sum(cents for _, cents, _ in self.items)
        return cents - cents * discount_percent // 100
