from app.format import money


def bill(thing):
    return money(thing.price)
