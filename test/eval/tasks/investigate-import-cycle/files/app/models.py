from app.store import save
from app.settings import DEBUG


class Thing:
    def __init__(self, price):
        self.price = price

    def keep(self):
        save(self)
        return DEBUG
