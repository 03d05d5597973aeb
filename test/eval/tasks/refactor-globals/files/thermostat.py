"""Switches the heating."""

target = 20.0
band = 1.0
heating = False
count_on = 0
seen = []


def reading(temperature):
    """Takes a reading, one an hour, and returns whether the heating is on."""
    global heating, count_on
    seen.append(temperature)
    if temperature < target - band:
        heating = True
    elif temperature > target + band:
        heating = False
    if heating:
        count_on += 1
    return heating


def hours():
    """How many hours the heating was on."""
    return count_on


def history():
    """All readings so far."""
    return list(seen)
