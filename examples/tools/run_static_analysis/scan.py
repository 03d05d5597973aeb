"""Reads {"path": ...} from standard input and prints what is weak in the Python files there.

The code is parsed, never run.
"""
import ast
import json
import os
import re
import sys

CALLS = {
    "eval": "code is made of data", "exec": "code is made of data",
    "os.system": "a shell reads the command line", "os.popen": "a shell reads the command line",
    "pickle.load": "unpickling runs code that is in the data", "pickle.loads": "unpickling runs code that is in the data",
    "yaml.load": "yaml.load makes any object that the data names",
}
SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key)$")


def name_of(node):
    if isinstance(node, ast.Attribute):
        return name_of(node.value) + "." + node.attr
    return node.id if isinstance(node, ast.Name) else ""


def literal(node):
    return isinstance(node, ast.Constant)


def weak(node):
    """What is weak about a node; None = nothing."""
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        if name in CALLS and not all(literal(a) for a in node.args):
            return CALLS[name]
        if any(k.arg == "shell" and literal(k.value) and k.value.value is True for k in node.keywords):
            return "a shell reads the command line"
    if isinstance(node, ast.Assign) and literal(node.value) and isinstance(node.value.value, str):
        if any(SECRET.search(name_of(t)) for t in node.targets):
            return "a secret stands in the code"
    return None


def python_files(path):
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(d, f) for d, _, names in os.walk(path) for f in names if f.endswith(".py"))


def scan(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        source = f.read()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        rule = weak(node)
        if rule == "a secret stands in the code":
            yield {"file": path, "line": node.lineno, "rule": rule, "code": "***"}
        elif rule:
            yield {"file": path, "line": node.lineno, "rule": rule, "code": lines[node.lineno - 1].strip()[:200]}


def main():
    path = os.path.join("/workspace", json.load(sys.stdin)["path"])
    names, findings = python_files(path), []
    for name in names:
        try:
            findings += scan(name)
        except (OSError, SyntaxError, ValueError, RecursionError) as e:
            print(f"{name}: {e}", file=sys.stderr)
    findings.sort(key=lambda f: (f["file"], f["line"]))
    json.dump({"files": len(names), "findings": findings}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
