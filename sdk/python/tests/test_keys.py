"""Who may do what. SKETE_FOREIGN is a sandbox of another tenant."""

import os

import pytest

from skete import DeniedError, NotFoundError, Skete


def test_a_wrong_key() -> None:
    if os.environ.get("SKETE_URL", "unix").startswith("unix"):
        pytest.skip("a unix socket asks for no key")
    for key in ("e2b_" + "0" * 40, "nonsense", ""):
        with Skete(key=key) as skete, pytest.raises(DeniedError) as e:
            skete.info()
        assert e.value.status == 401


def test_a_sandbox_of_another_tenant(client: Skete) -> None:
    if not (id := os.environ.get("SKETE_FOREIGN")):
        pytest.skip("there is no other tenant")
    foreign = client.sandbox(id)
    for call in (foreign.get, foreign.remove, lambda: foreign.run_command("id"), lambda: foreign.files.read("x"), foreign.undo):
        with pytest.raises(NotFoundError):
            call()
    assert id not in [s["id"] for s in client.sandboxes()]
