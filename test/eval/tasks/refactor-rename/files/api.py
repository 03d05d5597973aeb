"""Answers what clients ask for."""
import users
from users import get_user, get_user_count


def call(action, argument=None):
    if action == "get_user":
        return get_user(argument)
    if action == "count":
        return get_user_count()
    if action == "list":
        return users.get_users()
    raise ValueError(action)
