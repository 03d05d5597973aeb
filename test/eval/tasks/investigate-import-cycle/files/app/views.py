from app.models import Thing
from app.format import money
from app import settings


def page(name):
    return f"{name}: {money(Thing(250).price)} {settings.DEBUG}"
