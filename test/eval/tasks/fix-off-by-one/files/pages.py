"""Cuts lists into pages for the web front end."""


def page_count(total, size):
    """How many pages are needed to show `total` entries."""
    return total // size + 1


def page(items, number, size):
    """The entries of page `number`; the first page has the number 1."""
    start = (number - 1) * size
    return items[start:start + size - 1]


def span(number, size, total):
    """What is shown above a page, such as "11-20 of 35"."""
    first = (number - 1) * size + 1
    last = number * size
    return f"{first}-{last} of {total}"
