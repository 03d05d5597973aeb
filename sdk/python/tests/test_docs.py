"""What docs/bridges.md shows works as it stands there."""

import re
from pathlib import Path

from skete import Sandbox

PAGE = Path(__file__).parents[3] / "docs" / "bridges.md"


def test_the_bridge_of_three_methods(sandbox: Sandbox) -> None:
    [code] = [c for c in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class Machine" in c]
    scope: dict[str, type] = {}
    exec(code, scope)
    machine = scope["Machine"](sandbox)
    machine.write_file("three/a", b"\xff\n")
    assert machine.read_file("three/a") == b"\xff\n"
    assert machine.execute("wc -c < three/a; echo no >&2; exit 9") == (9, "2\n", "no\n")
