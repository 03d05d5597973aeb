"""Writes a line about each user."""
import users


def lines(numbers):
    return [f"{n}: {users.get_user(n) or 'unknown'}" for n in numbers]


def first(numbers, look=users.get_user):
    return look(numbers[0])
