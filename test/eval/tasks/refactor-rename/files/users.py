"""Who our users are."""

USERS = {1: "ada", 2: "bob", 3: "cleo"}


def get_user(number):
    """Return the name of a user, or None."""
    return USERS.get(number)


def get_user_count():
    return len(USERS)


def get_users():
    return sorted(USERS.values())
