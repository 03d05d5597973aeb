"""What the conformance tests of Deep Agents' backend do not look at."""

import asyncio
import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("deepagents")

from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from deepagents.backends.protocol import BackendProtocol, SandboxBackendProtocol
from langgraph.store.memory import InMemoryStore

from skete import NotFoundError, Sandbox, Skete
from skete.deepagents import SketeSandbox


@pytest.fixture(scope="module")
def backend(sandbox: Sandbox) -> Iterator[SketeSandbox]:
    backend = SketeSandbox(sandbox)
    yield backend
    backend.close()


def test_every_method_of_the_protocol_is_our_own() -> None:
    names = [n for c in (BackendProtocol, SandboxBackendProtocol) for n in vars(c) if not n.startswith("_")]
    assert len(names) >= 21
    assert [n for n in names if n not in vars(SketeSandbox)] == []


def test_files_and_listings(backend: SketeSandbox) -> None:
    assert backend.write("/workspace/t/a.txt", "one\n").error is None
    assert backend.write("/workspace/t/a.txt", "two\nthree\n").path == "/workspace/t/a.txt"
    backend.upload_files([("/workspace/t/b", b"\xff\xfe")])
    entries = {e["path"]: e for e in backend.ls("/workspace/t").entries or []}
    assert {p: (e["is_dir"], e["size"]) for p, e in entries.items()} == {"/workspace/t/a.txt": (False, 10), "/workspace/t/b": (False, 2)}
    read = backend.read("/workspace/t/a.txt", 1, 1)
    assert (read.file_data or {})["content"] == "three" and (read.start_line, read.end_line, read.total_lines, read.next_offset) == (2, 2, 2, None)
    read = backend.read("/workspace/t/b")
    assert read.file_data == {"content": base64.b64encode(b"\xff\xfe").decode(), "encoding": "base64"}
    assert backend.read("/workspace/t/a.txt", 0, 0).no_lines_requested
    assert backend.read("/workspace/t").error == "File '/workspace/t': not_a_file"
    assert backend.read("/etc/none").error == "File '/etc/none': file_not_found"
    assert backend.ls("/workspace/none").error == "Path '/workspace/none': path_not_found"
    assert backend.ls("/workspace/t/b").error == "Path '/workspace/t/b': not_a_directory"
    assert backend.ls("/root").error == "Path '/root': permission_denied"
    assert backend.write("/etc/x", "").error == "Failed to write file '/etc/x': permission_denied"
    assert backend.write("/workspace/t", "").error == "Failed to write file '/workspace/t': is_directory"
    assert backend.write("/workspace/x", "\ud800").error is not None
    got = backend.upload_files([("/workspace/t/c", b"c"), ("c", b""), ("/workspace/\0", b""), ("/etc/c", b""), ("/workspace/t", b"")])
    assert [r.error for r in got] == [None, "invalid_path", "invalid_path", "permission_denied", "is_directory"]
    down = backend.download_files(["/workspace/t/c", "c", "/workspace/none", "/root/x", "/workspace/t"])
    assert [(r.content, r.error) for r in down] == [
        (b"c", None), (None, "invalid_path"), (None, "file_not_found"), (None, "permission_denied"), (None, "is_directory")]
    assert backend.delete("/workspace/t").path == "/workspace/t"
    assert backend.delete("/workspace/t").error == "Error: '/workspace/t' not found"


def test_edits(backend: SketeSandbox) -> None:
    path = "/workspace/e.txt"
    backend.upload_files([(path, b"a\r\nb\r\na\r\n")])
    assert backend.edit(path, "a\nb", "c\nd").occurrences == 1
    assert backend.download_files([path])[0].content == b"c\r\nd\r\na\r\n"
    assert "multiple" in str(backend.edit(path, "\n", "").error)
    assert backend.edit(path, "", "x").error and backend.edit("/workspace", "a", "b").error
    assert backend.edit(path, "zz", "x").error == "Error: String not found in file: 'zz'"
    backend.upload_files([(path, b"\xff")])
    assert backend.edit(path, "a", "b").error == f"Error: File '{path}' is not a text file"


def test_edits_at_the_same_time_are_all_done(backend: SketeSandbox) -> None:
    path = "/workspace/many.txt"
    backend.write(path, "".join(f"<{i}>\n" for i in range(8)))
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda i: backend.edit(path, f"<{i}>", f"[{i}]"), range(8)))
    assert [d.occurrences for d in done] == [1] * 8
    assert (backend.read(path).file_data or {})["content"] == "\n".join(f"[{i}]" for i in range(8))


def test_globs_are_those_of_deep_agents(backend: SketeSandbox) -> None:
    base = "/workspace/g"
    for name in ("top.py", "src/a.py", "src/deep/b.py", ".hidden/c.py", ".env", "src/.x.py", "src/d.txt"):
        backend.write(f"{base}/{name}", "needle")
    table = {
        "*.py": ["src/a.py", "src/deep/b.py", "top.py", ".hidden/c.py"],
        "/*.py": ["top.py"],
        "**/*.py": ["src/a.py", "src/deep/b.py", "top.py"],
        "src/**/*.py": ["src/a.py", "src/deep/b.py"],
        "src/*": ["src/a.py", "src/d.txt"],
        ".*": [".env", "src/.x.py"],
        "*.{py,txt}": ["src/a.py", "src/deep/b.py", "src/d.txt", "top.py", ".hidden/c.py"],
        "[!t]*.py": ["src/a.py", "src/deep/b.py", ".hidden/c.py"],
        "?.py": ["src/a.py", "src/deep/b.py", ".hidden/c.py"],
        "none": [],
    }
    for pattern, want in table.items():
        found = backend.glob(pattern, base)
        assert sorted(m["path"] for m in found.matches or []) == sorted(f"{base}/{w}" for w in want), pattern
        lines = backend.grep("needle", base, pattern).matches or []
        assert sorted(m["path"] for m in lines) == sorted(f"{base}/{w}" for w in want), pattern
    assert backend.glob("../*", base).error and backend.glob("../*", base).matches is None
    assert backend.glob("*", "/workspace/none").error == "Path '/workspace/none': file_not_found"
    assert f"{base}/top.py" in [m["path"] for m in backend.glob("top.py").matches or []]


def test_searches_are_bounded_and_leave_gits_files_out(backend: SketeSandbox) -> None:
    base = "/workspace/s"
    backend.upload_files([(f"{base}/.git/log", b"word\n" * 900), (f"{base}/a", b"word\n" * 5), (f"{base}/bin", b"word\0")])
    for most, want in ((None, (5, False)), (5, (5, False)), (4, (4, True)), (0, (0, True))):
        found = backend.grep("word", base, max_count=most)
        assert (len(found.matches or []), found.truncated) == want, most
    assert len(backend.grep("word", base + "/.git").matches or []) == 900
    assert backend.grep("wo.d", base).matches == []
    assert backend.grep("", base).error


def test_a_large_text_is_read_as_far_as_it_is_shown(backend: SketeSandbox) -> None:
    backend.execute("seq 20000000 > /workspace/large.txt")
    read = backend.read("/workspace/large.txt", 100_000, 2)
    assert (read.file_data or {})["content"] == "100001\n100002"
    assert (read.total_lines, read.end_line, read.next_offset) == (None, 100_002, 100_002)
    backend.delete("/workspace/large.txt")


def test_commands(backend: SketeSandbox) -> None:
    done = backend.execute("echo out; echo err >&2; exit 3")
    assert (done.output, done.exit_code, done.truncated) == ("out\nerr\n", 3, False)
    late = backend.execute("echo begun; sleep 100", timeout=1)
    assert late.output == "begun\nError: Command timed out after 1 seconds" and late.exit_code != 0
    assert backend.execute("head -c 11000000 /dev/zero").truncated
    assert backend.execute("pwd; echo \"$0\" '$HOME'").output.startswith("/workspace\n")


def test_event_loops_come_and_go(backend: SketeSandbox) -> None:
    async def work() -> list[object]:
        await backend.awrite("/workspace/loop", "x")
        return await asyncio.gather(*(backend.aexecute(f"cat loop; echo {i}") for i in range(10)))

    for _ in range(3):
        assert [r.output for r in asyncio.run(work())] == [f"x{i}\n" for i in range(10)]  # type: ignore[attr-defined]


def test_a_part_of_a_composite(backend: SketeSandbox) -> None:
    store = StoreBackend(store=InMemoryStore(), namespace=lambda _: ("test",))
    both = CompositeBackend(default=backend, routes={"/memories/": store})
    assert both.write("/memories/a.md", "remember").error is None
    assert both.write("/workspace/c.md", "remember").error is None
    assert (both.read("/memories/a.md").file_data or {})["content"].strip() == "remember"
    assert {m["path"] for m in both.grep("remember", "/workspace").matches or []} == {"/workspace/c.md"}
    assert {m["path"] for m in both.grep("remember").matches or []} >= {"/workspace/c.md", "/memories/a.md"}
    assert both.execute("ls /memories").exit_code != 0
    assert both.delete("/memories/a.md").error is None
    other = CompositeBackend(default=StateBackend(), routes={"/workspace/": backend})
    assert other.download_files(["/workspace/c.md"])[0].error == "file_not_found"  # the route's name is taken off


def test_a_sandbox_that_is_gone_is_no_missing_file(client: Skete) -> None:
    with SketeSandbox.create() as gone:
        assert gone.read("/workspace/none").error
        gone.sandbox.remove()
        with pytest.raises(Exception) as e:
            gone.read("/workspace/none")
        assert not isinstance(e.value, AssertionError)
        with pytest.raises(NotFoundError):
            SketeSandbox("sbx_aaaaaaaaaaaaaaaaaaaa").read("/workspace/none")
