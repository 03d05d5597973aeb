import app.billing
from app.models import Thing


def check(text):
    return bool(text) and Thing and app.billing
