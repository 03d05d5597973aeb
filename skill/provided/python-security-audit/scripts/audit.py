#!/usr/bin/env python3
"""Static security analysis of Python code. Reads files, and runs nothing of them.

    audit.py [--json] [--min low|medium|high] PATH...
    audit.py --list

Exit status: 0 nothing found, 1 findings, 2 something could not be read.
"""
import argparse
import ast
import json
import os
import re
import sys

LEVELS = {"low": 0, "medium": 1, "high": 2}
FILE_BYTES_MAX = 2 << 20
FILES_MAX = 10_000
SKIPPED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}

# id: (severity, what is wrong, what to write instead)
RULES = {
    "eval": ("high", "code is made of data", "ast.literal_eval for literals, json.loads for data"),
    "shell": ("high", "a shell reads the command line", "a list of arguments without shell=True"),
    "pickle": ("high", "unpickling runs code that is in the data", "json, or a format with a schema"),
    "yaml-load": ("high", "yaml.load makes any object that the data names", "yaml.safe_load"),
    "sql": ("high", "a query is made by putting values into text", "parameters: execute(query, values)"),
    "secret": ("high", "a secret stands in the code", "read it from the environment or a secret store"),
    "tls-off": ("high", "the certificate of the other side is not checked", "leave verification on"),
    "jwt-unverified": ("high", "a token's signature is not checked", "jwt.decode with the key and algorithms=[...]"),
    "extract": ("medium", "an archive may write outside of its folder", "extractall(path, filter='data')"),
    "weak-hash": ("medium", "MD5 and SHA-1 do not resist attackers", "hashlib.sha256; for passwords hashlib.scrypt"),
    "weak-random": ("medium", "random can be predicted", "the module secrets"),
    "temp-name": ("medium", "between name and use another process takes the file", "tempfile.mkstemp or NamedTemporaryFile"),
    "debug": ("medium", "the debugger of a web application lets its visitors run code", "debug=False"),
    "permissions": ("medium", "every user of the machine may write", "0o600, or 0o644"),
    "xml": ("low", "entities of XML may fill the memory or read files", "defusedxml, or a parser without entities"),
    "bind-all": ("low", "it listens on all addresses", "127.0.0.1, if only this machine needs it"),
    "assert": ("low", "assert vanishes with python -O", "raise an exception"),
}

SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|token|api_?key|private_?key)$")
SECRET_VALUE = re.compile(r"^(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|sk-[A-Za-z0-9_-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----)")
PLACEHOLDER = re.compile(r"(?i)^$|^[<{$%]|example|changeme|placeholder|^x+$|^\*+$|your[-_ ]")


def dotted(node):
    """The name of what is called, as far as it is one: subprocess.run."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    else:
        parts.append("")
    return ".".join(reversed(parts))


def constant(node):
    return node.value if isinstance(node, ast.Constant) else None


def keyword(call, name):
    return next((k.value for k in call.keywords if k.arg == name), None)


def made_text(node):
    """Whether text is put together of values at run time."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(v, ast.FormattedValue) for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        texts = [n for n in ast.walk(node) if isinstance(constant(n), str)]
        return bool(texts) and not all(isinstance(n, (ast.Constant, ast.BinOp, ast.operator)) for n in ast.walk(node))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"


class Audit(ast.NodeVisitor):
    def __init__(self, path, lines):
        self.path, self.lines, self.found, self.names, self.functions = path, lines, [], {}, []

    def add(self, rule, node):
        severity, what, instead = RULES[rule]
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1].strip()[:160] if line <= len(self.lines) else ""
        if rule == "secret":
            text = re.sub(r"(['\"]).*\1", r"\1***\1", text)
        self.found.append({"file": self.path, "line": line, "column": getattr(node, "col_offset", 0) + 1, "rule": rule,
                           "severity": severity, "what": what, "instead": instead, "code": text})

    def visit_Import(self, node):
        for a in node.names:
            self.names[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
        self.generic_visit(node)

    def visit_ImportFrom(self, node):
        for a in node.names:
            self.names[a.asname or a.name] = f"{node.module or ''}.{a.name}"
        self.generic_visit(node)

    def full(self, func):
        head, _, rest = dotted(func).partition(".")
        head = self.names.get(head, head)
        return f"{head}.{rest}" if rest else head

    def visit_FunctionDef(self, node):
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assert(self, node):
        if "test" not in os.path.basename(self.path) and not any(f.startswith("test") for f in self.functions):
            self.add("assert", node)
        self.generic_visit(node)

    def secret(self, name, value, node):
        text = constant(value)
        if isinstance(text, str) and (SECRET_VALUE.match(text) or SECRET_NAME.search(name) and len(text) >= 6 and not PLACEHOLDER.search(text)):
            self.add("secret", node)

    def visit_Assign(self, node):
        for t in node.targets:
            name = constant(t.slice) if isinstance(t, ast.Subscript) else dotted(t)
            self.secret(str(name or ""), node.value, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.secret(dotted(node.target), node.value, node)
        self.generic_visit(node)

    def visit_Dict(self, node):
        for k, v in zip(node.keys, node.values):
            self.secret(str(constant(k) or "") if k is not None else "", v, v)
        self.generic_visit(node)

    def visit_Call(self, node):
        name = self.full(node.func)
        last = name.rsplit(".", 1)[-1]
        first = node.args[0] if node.args else None
        for k in node.keywords:
            if k.arg:
                self.secret(k.arg, k.value, k.value)
        if name in ("eval", "exec", "compile") and first is not None and constant(first) is None:
            self.add("eval", node)
        if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "commands.getoutput"):
            if constant(first) is None:
                self.add("shell", node)
        elif constant(keyword(node, "shell")) is True and constant(first) is None:
            self.add("shell", node)
        if name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.loads", "dill.loads", "dill.load", "marshal.loads",
                    "shelve.open", "jsonpickle.decode", "joblib.load"):
            self.add("pickle", node)
        if name in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"):
            loader = keyword(node, "Loader") or (node.args[1] if len(node.args) > 1 else None)
            if "unsafe" in name or loader is None or "Safe" not in dotted(loader):
                self.add("yaml-load", node)
        if last in ("execute", "executemany", "executescript", "raw") and first is not None and made_text(first):
            self.add("sql", node)
        if constant(keyword(node, "verify")) is False or name == "ssl._create_unverified_context":
            self.add("jwt-unverified" if name == "jwt.decode" else "tls-off", node)
        if name == "jwt.decode":
            options = keyword(node, "options")
            if isinstance(options, ast.Dict) and any(constant(k) == "verify_signature" and constant(v) is False for k, v in zip(options.keys, options.values)):
                self.add("jwt-unverified", node)
        if last == "extractall" and keyword(node, "filter") is None:
            self.add("extract", node)
        if name in ("hashlib.md5", "hashlib.sha1") and constant(keyword(node, "usedforsecurity")) is not False:
            self.add("weak-hash", node)
        if name.startswith("random.") and last in ("random", "randint", "choice", "choices", "randrange", "getrandbits", "sample"):
            if any(re.search(r"(?i)token|secret|password|key|nonce|salt|session|otp", f) for f in self.functions + [self.line(node)]):
                self.add("weak-random", node)
        if name == "tempfile.mktemp":
            self.add("temp-name", node)
        if last == "run" and constant(keyword(node, "debug")) is True:
            self.add("debug", node)
        if name in ("os.chmod", "os.fchmod") and len(node.args) > 1 and isinstance(constant(node.args[1]), int) and constant(node.args[1]) & 0o002:
            self.add("permissions", node)
        if name.startswith(("xml.etree.", "xml.dom.", "xml.sax.", "lxml.etree.")) and last in ("parse", "fromstring", "XML", "parseString", "iterparse"):
            self.add("xml", node)
        if last in ("bind", "run", "run_app", "serve") and any(constant(n) == "0.0.0.0" for n in ast.walk(node)):
            self.add("bind-all", node)
        self.generic_visit(node)

    def line(self, node):
        return self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""


def files(paths):
    """The Python files beneath the paths; links to folders are not followed."""
    n = 0
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(f for f in folders if f not in SKIPPED)
            for name in sorted(names):
                if name.endswith((".py", ".pyw")):
                    n += 1
                    if n > FILES_MAX:
                        raise OSError(f"more than {FILES_MAX} files beneath {path}")
                    yield os.path.join(folder, name)


def audit(path):
    """The findings of a file. OSError, SyntaxError, ValueError: it cannot be read."""
    if os.path.getsize(path) > FILE_BYTES_MAX:
        raise ValueError(f"larger than {FILE_BYTES_MAX >> 20} MiB")
    with open(path, "rb") as f:
        source = f.read()
    a = Audit(path, source.decode("utf-8", "replace").splitlines())
    a.visit(ast.parse(source, path))
    return a.found


def main(argv):
    p = argparse.ArgumentParser(description="Static security analysis of Python code.")
    p.add_argument("paths", nargs="*", metavar="PATH")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.add_argument("--min", choices=list(LEVELS), default="low", help="leave out what is less severe")
    p.add_argument("--list", action="store_true", help="print the rules")
    args = p.parse_args(argv)
    if args.list:
        for rule, (severity, what, instead) in RULES.items():
            print(f"{rule:15} {severity:7} {what}; write: {instead}")
        return 0
    if not args.paths:
        p.error("name a file or a folder")
    found, unread, read = [], [], 0
    try:
        for path in files(args.paths):
            try:
                found += [f for f in audit(path) if LEVELS[f["severity"]] >= LEVELS[args.min]]
                read += 1
            except (OSError, SyntaxError, ValueError, RecursionError) as e:
                unread.append({"file": path, "why": str(e) or type(e).__name__})
    except OSError as e:
        unread.append({"file": "", "why": str(e)})
    found.sort(key=lambda f: (-LEVELS[f["severity"]], f["file"], f["line"], f["column"], f["rule"]))
    if args.json:
        print(json.dumps({"files": read, "findings": found, "unread": unread}, indent=1))
    else:
        for f in found:
            print(f"{f['file']}:{f['line']}:{f['column']}: {f['severity']}: {f['rule']}: {f['what']}; write: {f['instead']}\n    {f['code']}")
        for u in unread:
            print(f"{u['file']}: not read: {u['why']}", file=sys.stderr)
        print(f"{len(found)} findings in {read} files", file=sys.stderr)
    return 2 if unread else 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
