from app.audit import note
from app.format import money


def save(thing):
    note(money(thing.price))
