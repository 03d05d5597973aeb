from __future__ import annotations

from typing import TYPE_CHECKING

from app.settings import NAME

if TYPE_CHECKING:
    from app.models import Thing


def money(cents):
    return f"{cents / 100:.2f}"


def line(thing: Thing):
    return f"{NAME} {thing.price}"
