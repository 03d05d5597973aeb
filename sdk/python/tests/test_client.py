"""The client on a real machine: synchronous and asynchronous."""

import asyncio
import os
import threading

import pytest

from skete import (
    AsyncSkete, CommandError, ConflictError, InvalidError, LimitError, NotFoundError, Sandbox, Skete, SketeError,
    UnavailableError,
)


def test_a_command_and_what_came_of_it(sandbox: Sandbox) -> None:
    r = sandbox.run_command("echo out; echo err >&2; exit 3")
    assert (r.stdout, r.stderr, r.exit_code, r.stdout_truncated) == ("out\n", "err\n", 3, False)
    assert sandbox.run_command(["cat"], stdin=b"\xff\x00").stdout_bytes == b"\xff\x00"
    assert sandbox.run_command("echo $A; pwd", env={"A": "b"}, cwd="/tmp").stdout == "b\n/tmp\n"
    cut = sandbox.run_command("head -c 3000 /dev/zero", output_bytes_max=1000)
    assert (len(cut.stdout_bytes), cut.stdout_truncated) == (1000, True)
    assert sum(len(o.data) for o in sandbox.process(cut.key).output(1000)) == 2000
    none = sandbox.run_command(["no-such-program"])
    assert (none.exit_code, none.not_started) == (127, True)
    late = sandbox.run_command("sleep 100", timeout=0.2)
    assert late.reason == "timeout"
    with pytest.raises(CommandError) as e:
        sandbox.run_command("exit 4", check=True)
    assert e.value.result.exit_code == 4


def test_the_same_key_never_runs_twice(sandbox: Sandbox) -> None:
    first = sandbox.run_command("date +%N", key="once")
    again = sandbox.run_command("date +%N", key="once")
    assert again.existed and again.stdout == first.stdout


def test_a_command_as_it_runs(sandbox: Sandbox) -> None:
    p = sandbox.start_command("echo ready; read line; echo got $line >&2; cat; exit 5", stdin=True)
    pieces = iter(p)
    assert next(pieces).text == "ready\n"
    p.write("a line\n")
    p.write(b"x" * 3_000_000)  # in several calls
    p.close_stdin()
    streams: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    for piece in pieces:
        streams[piece.stream] += piece.data
    assert (streams["stderr"], len(streams["stdout"]), p.exit_code) == (b"got a line\n", 3_000_000, 5)
    assert p.key in [q["key"] for q in sandbox.processes()]
    with pytest.raises(SketeError):
        p.write("more")
    p.forget()
    with pytest.raises(NotFoundError):
        p.get()


def test_a_command_in_the_background(sandbox: Sandbox) -> None:
    p = sandbox.start_command("head -c 40000000 /dev/zero; echo end; sleep 100", background=True)
    assert p.wait(0.1)["state"] == "running"
    for _ in range(100):  # a slow machine has written nothing yet
        if p.get()["stdout"]["size"]:
            break
        p.wait(0.1)
    p.kill()
    assert p.wait()["state"] == "exited" and p.exit_code == 137
    pieces = list(p)
    assert sum(o.lost or len(o.data) for o in pieces) == p.get()["stdout"]["size"]
    assert pieces[0].offset == 0 and all(b.offset == a.offset + (a.lost or len(a.data)) for a, b in zip(pieces, pieces[1:]))


def test_output_from_an_offset_and_without_waiting(sandbox: Sandbox) -> None:
    p = sandbox.start_command("printf 0123456789; sleep 100", background=True)
    next(iter(p))
    assert b"".join(o.data for o in p.output(4, follow=False)) == b"456789"
    p.kill()


def test_files(sandbox: Sandbox) -> None:
    f = sandbox.files
    f.write("dir/a.txt", "0123456789", make_parents=True, mode=0o600)
    assert (f.read("dir/a.txt"), f.read("dir/a.txt", 3, 4), f.read("dir/a.txt", 8), f.read("dir/a.txt", 0, 0)) == \
        (b"0123456789", b"3456", b"89", b"")
    known = f.stat("dir/a.txt", hash=True)
    assert (known["size"], known["mode"], known["type"], len(known.get("sha256", ""))) == (10, 0o600, "file", 64)
    f.write("dir/a.txt", "!", append=True)
    f.write("dir/a.txt", "AB", offset=1)
    assert f.read_text("dir/a.txt") == "0AB3456789!"
    with pytest.raises(ConflictError):
        f.write("dir/a.txt", "x", if_sha256="0" * 64)
    with pytest.raises(SketeError):
        f.write("dir/a.txt", "x", if_absent=True)
    f.make_dir("dir/deep/er", parents=True)
    f.move("dir/a.txt", "dir/deep/b.txt")
    f.copy("dir/deep/b.txt", "dir/deep/c.txt")
    f.symlink("b.txt", "dir/deep/l")
    f.chmod("dir/deep/c.txt", 0o400)
    assert [(x["path"], x["type"], x["mode"] & 0o777) for x in f.list("dir", depth=3)] == [
        ("/workspace/dir/deep", "directory", 0o755), ("/workspace/dir/deep/b.txt", "file", 0o600),
        ("/workspace/dir/deep/c.txt", "file", 0o400), ("/workspace/dir/deep/er", "directory", 0o755),
        ("/workspace/dir/deep/l", "symlink", 0o777)]
    assert [m["line"] for m in f.grep("ab", ignore_case=True, base="dir")["items"]] == [1, 1]
    assert f.remove("dir", recursive=True) == 6
    assert not f.exists("dir") and f.remove("dir", missing_ok=True) == 0
    with pytest.raises(NotFoundError):
        f.read("dir/a.txt")
    with pytest.raises(InvalidError):
        f.read("/workspace")


def test_names_that_are_not_utf8(sandbox: Sandbox) -> None:
    name = os.fsdecode(b"n\xff\xfe")
    sandbox.files.write(name, "x")
    sandbox.files.move(name, name + "2")
    assert sandbox.files.read(name + "2") == b"x"
    assert sandbox.run_command("ls | grep -c 2").stdout == "1\n"


def test_a_large_file_goes_in_pieces(sandbox: Sandbox) -> None:
    sandbox.files.write("large", (b"%07d\n" % i * 16384 for i in range(256)))
    at = 0
    for part in sandbox.files.stream("large"):
        assert len(part) <= 256 << 10
        at += len(part)
    assert at == 256 * 16384 * 8
    assert sandbox.files.read("large", 200 * 16384 * 8, 8) == b"0000200\n"
    sandbox.files.remove("large")


def test_what_is_refused(client: Skete, sandbox: Sandbox) -> None:
    with pytest.raises(NotFoundError, match="no-such-template") as e:
        client.create("no-such-template")
    assert e.value.hint and e.value.error_class == "not_found" and e.value.status == 404
    with pytest.raises(NotFoundError):
        client.sandbox("sbx_aaaaaaaaaaaaaaaaaaaa").get()
    with pytest.raises((NotFoundError, InvalidError)):
        client.sandbox("../info").get()
    with pytest.raises(InvalidError, match="cpus"):
        client.create(cpus="many")
    with pytest.raises(InvalidError):
        client.create(no_such_key=1)
    with pytest.raises((InvalidError, LimitError)):
        sandbox.run_command("x" * 200_000)
    with pytest.raises(InvalidError):
        sandbox.run_command(["a\0b"])
    with pytest.raises(UnavailableError) as u:
        Skete("http://127.0.0.1:1").info()
    assert "skete serve" in u.value.hint


def test_history(client: Skete) -> None:
    with client.create() as sb:
        sb.files.write("a", "1\n")
        sb.files.write("a", "2\n")
        sb.run_command("rm a; echo b > b")
        assert [r["title"] for r in sb.history.revisions()][:3] == ["exec rm a; echo b > b", 'write "a"', 'write "a"']
        assert [r["who"] for r in sb.history.revisions()][0] == sb.history.state()["items"][0]["who"]
        n = sb.history.state()["current"]
        assert {(f["path"], f["action"]) for f in sb.history.diff(n - 1, n)["files"]} == {("a", "remove"), ("b", "add")}
        assert sb.history.read(n - 1, "a") == b"2\n"
        assert {f["path"] for f in sb.history.get(n)["files_changed"]} == {"a", "b"}
        sb.undo()
        assert sb.files.read("a") == b"2\n" and not sb.files.exists("b")
        sb.history.redo()
        assert sb.files.exists("b")
        sb.history.restore(n - 2, "a")
        assert sb.files.read("a") == b"1\n" and sb.files.exists("b")
        with pytest.raises(ConflictError):
            sb.history.revert(n)
        sb.history.revert(n, [{"path": "a", "choice": "keep"}])
        assert not sb.files.exists("b")
        assert len(sb.history.of_path("a")["items"]) >= 3
        with pytest.raises(SketeError) as e:
            for _ in range(30):
                sb.undo()
        assert e.value.code == "nothing_to_do"


def test_the_life_of_a_sandbox(client: Skete) -> None:
    with client.create(name="py-life", metadata={"of": "py"}, persist=True) as sb:
        sb.files.write("kept", "x")
        assert client.sandbox("py-life").get()["id"] == sb.id
        assert [s["id"] for s in client.sandboxes(metadata={"of": "py"})] == [sb.id]
        assert sb.update(metadata={"of": "other"})["metadata"] == {"of": "other"}
        assert sb.stop()["state"] == "stopped"
        assert sb.start()["state"] == "running"
        [fork] = sb.fork(1, disk_only=True)
        with fork:
            fork.files.write("kept", "y")
            assert (sb.files.read("kept"), fork.files.read("kept")) == (b"x", b"y")
        snapshot = sb.snapshot("py", disk_only=True)
        assert snapshot["id"] in [s["id"] for s in client.snapshots()]
        with client.create(**{"from": snapshot["id"]}) as other:
            assert other.files.read("kept") == b"x"
        client.remove_snapshot(snapshot["id"])
    assert client.sandbox(sb.id).get()["state"] == "destroyed"


def test_threads_share_a_client(sandbox: Sandbox) -> None:
    got: list[str] = []
    threads = [threading.Thread(target=lambda i=i: got.append(sandbox.run_command(f"echo {i}").stdout)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got, key=int) == [f"{i}\n" for i in range(12)]


async def test_the_asynchronous_client(sandbox: Sandbox) -> None:
    async with AsyncSkete() as client:
        sb = client.sandbox(sandbox.id)
        results = await asyncio.gather(*(sb.run_command(f"sleep 0.2; echo {i}") for i in range(12)))
        assert [r.stdout for r in results] == [f"{i}\n" for i in range(12)]
        await sb.files.write("async", "x")
        assert await sb.files.read("async") == b"x"
        assert "/workspace/async" in [f["path"] async for f in sb.files.list()]
        p = await sb.start_command("cat; exit 6", stdin=True)
        await p.write("in")
        await p.close_stdin()
        assert [o.text async for o in p] == ["in"] and p.exit_code == 6


async def test_a_call_that_is_cancelled_ends_its_command(sandbox: Sandbox) -> None:
    async with AsyncSkete() as client:
        sb = client.sandbox(sandbox.id)
        task = asyncio.create_task(sb.run_command("touch began; exec sleep 1000"))
        while not await sb.files.exists("began"):
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended = [p async for p in sb.processes() if "began" in str(p["argv"])]
        assert len(ended) == 1 and (await sb.process(ended[0]["key"]).wait())["state"] == "exited"
