import settings


def greeting(name):
    words = settings.get("greeting")
    return f"{words} {name}" + settings.get("mark")
