#!/usr/bin/env python3
"""Makes skete/types.py of an OpenAPI document, and the synchronous modules of the asynchronous ones.

    python3 generate.py openapi.json            writes them
    python3 generate.py openapi.json --check    says which are out of date
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

SOURCE = Path(__file__).parent / "src" / "skete"

HEAD = '''"""The types of the API, as dictionaries. Made by generate.py of the server's OpenAPI document: do not change it.

A key that is NotRequired is missing where it would be empty. A later server may send more keys.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing_extensions import NotRequired

'''

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict[str, Any]", "array": "list[Any]"}


def type_of(schema: dict) -> str:
    """The Python type of a schema."""
    if ref := schema.get("$ref"):
        return ref.rsplit("/", 1)[1]
    if values := schema.get("enum"):
        return "Literal[" + ", ".join(json.dumps(v) for v in values) + "]"
    kind = schema.get("type")
    if isinstance(kind, list):  # ["array", "null"]: empty
        kinds = [PLAIN[k] if k != "array" else type_of({**schema, "type": "array"}) for k in kind if k != "null"]
        return " | ".join(kinds + ["None"] * ("null" in kind and kind != ["array", "null"]))
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}))}]"
    if kind == "object" and isinstance(more := schema.get("additionalProperties"), dict) and more:
        return f"dict[str, {type_of(more)}]"
    return PLAIN.get(kind, "Any")


def comment(text: str) -> list[str]:
    """Documentation before a key."""
    return ["    # " + line for line in textwrap.wrap(text, 112)]


def class_of(name: str, schema: dict) -> str:
    """A TypedDict; one with a key that is no name of Python is made by a call."""
    required = set(schema.get("required", []))
    keys = {k: v for k, v in schema.get("properties", {}).items() if k != "$schema"}
    typed = {k: type_of(v) if k in required else f"NotRequired[{type_of(v)}]" for k, v in keys.items()}
    text = schema.get("description", "")
    if any(not k.isidentifier() or keyword.iskeyword(k) for k in keys):
        return "\n".join([f"{name} = TypedDict({name!r}, {{"] + [f"    {k!r}: {json.dumps(t)}," for k, t in typed.items()] + ["})"])
    lines = [f"class {name}(TypedDict):"]
    if text:
        lines += textwrap.wrap(f'"""{text}"""', 112, initial_indent="    ", subsequent_indent="    ") + [""]
    for key, kind in typed.items():
        lines += comment(keys[key].get("description", "")) + [f"    {key}: {kind}"]
    return "\n".join(lines if keys or text else lines + ["    pass"]).rstrip()


def types_of(document: dict) -> str:
    """The module of all types."""
    schemas = sorted(document["components"]["schemas"].items())
    classes = [class_of(name, schema) for name, schema in schemas if schema.get("type") == "object"]
    others = [f"{name} = {type_of(schema)}" for name, schema in schemas if schema.get("type") != "object"]
    return HEAD + "\n\n" + "\n\n\n".join(classes) + "\n" + "".join("\n\n" + o for o in others)


# What is otherwise in a synchronous module, beside async and await.
OTHERWISE = [
    (r"^import asyncio\n", ""), (r"\basyncio\.sleep\b", "time.sleep"), (r"\b(async|await) ", ""),
    (r"\bAsync(?=[A-Z])", ""), (r"\b__a(enter|exit|iter)__\b", r"__\1__"), (r"\ba(close|closing|read|iter_raw|iter_bytes)\b", r"\1"),
    (r"_async\b", "_sync"),
    (r'\A"""The asynchronous (.*?)\. .*?"""', r'"""The synchronous \1. Made by generate.py: change the asynchronous one."""'),
]


def sync_of(text: str) -> str:
    """The synchronous twin of an asynchronous module."""
    for pattern, replacement in OTHERWISE:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.DOTALL)
    return text


def main(openapi: str, check: bool) -> int:
    made = {"types.py": types_of(json.loads(Path(openapi).read_text()))}
    for source in sorted(SOURCE.glob("*_async.py")):
        made[source.name.replace("_async", "_sync")] = sync_of(source.read_text())
    stale = [name for name, text in made.items() if not (SOURCE / name).exists() or (SOURCE / name).read_text() != text]
    for name in stale:
        if check:
            print(f"{name} is out of date: `go test ./server -run TestPython -args -update` writes it")
        else:
            (SOURCE / name).write_text(made[name])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--check" in sys.argv[2:]))
