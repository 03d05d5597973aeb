_defaults = {"greeting": "Hello", "mark": "!", "colour": "blue"}
_changed = {}


def get(key):
    return _changed.get(key, _defaults[key])


def set(key, value):
    _changed[key] = value


def reset():
    _changed.clear()


def defaults():
    return _defaults
