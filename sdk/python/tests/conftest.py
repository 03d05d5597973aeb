"""The tests need a server: SKETE_URL and SKETE_KEY. test/e2e starts one and runs them."""

from collections.abc import Iterator

import pytest

from skete import Sandbox, Skete


@pytest.fixture(scope="session")
def client() -> Iterator[Skete]:
    with Skete() as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(client: Skete) -> Iterator[Sandbox]:
    with client.create() as sandbox:
        yield sandbox
