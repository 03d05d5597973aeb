"""Calls what the SDK exports, as its documentation shows it, and prints a line of
JSON for each method: whether it works, is refused, or fails."""

import asyncio
import json
import time
import urllib.request

from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxQuery,
    SandboxState,
    Secret,
    SecretException,
    SecretNotFoundException,
    TimeoutException,
    Volume,
)


def works(method):
    def run(call):
        try:
            call()
            print(json.dumps({"method": method, "result": "works"}), flush=True)
        except BaseException as e:  # also what is no Exception
            note = f"{type(e).__name__}: {e}"[:500]
            print(json.dumps({"method": method, "result": "fails", "note": note}), flush=True)

    return run


def refused(method):
    def run(call):
        try:
            call()
            line = {"method": method, "result": "fails", "note": "it was not refused"}
        except Exception as e:
            ok = "not supported" in str(e) or "requires envd" in str(e)
            line = {"method": method, "result": "refused" if ok else "fails", "note": f"{type(e).__name__}: {e}"[:500]}
        print(json.dumps(line), flush=True)

    return run


def rejects(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def soon(done):
    end = time.time() + 10
    while not done():
        assert time.time() < end, "it did not come"
        time.sleep(0.05)


sbx = Sandbox.create(timeout=300, metadata={"purpose": "a test & more"}, envs={"FROM": "create"})


@works("Sandbox.create")
def _():
    assert sbx.commands.run("echo $FROM").stdout == "create\n"


@works("Sandbox.connect")
def _():
    assert Sandbox.connect(sbx.sandbox_id).commands.run("echo $FROM").stdout == "create\n"


@works("Sandbox.list")
def _():
    query = SandboxQuery(metadata={"purpose": "a test & more"}, state=[SandboxState.RUNNING])
    assert [s.sandbox_id for s in Sandbox.list(query=query).next_items()] == [sbx.sandbox_id]


@works("sandbox.getInfo")
def _():
    info = sbx.get_info()
    assert (info.template_id, info.state, info.metadata) == ("base", SandboxState.RUNNING, {"purpose": "a test & more"})


@works("sandbox.isRunning")
def _():
    assert sbx.is_running()


@works("sandbox.setTimeout")
def _():
    sbx.set_timeout(600)
    info = sbx.get_info()
    assert info.end_at.timestamp() - time.time() > 400


@works("sandbox.getMetrics")
def _():
    assert 0 < sbx.get_metrics()[0].mem_used < sbx.get_metrics()[0].mem_total


@works("sandbox.getHost")
def _():
    assert sbx.get_host(3000).startswith(f"3000-{sbx.sandbox_id}.")


@works("commands.run")
def _():
    out = []
    r = sbx.commands.run("echo out; echo err >&2; pwd; echo $A", envs={"A": "b"}, cwd="/tmp", on_stdout=out.append)
    assert (r.exit_code, r.stdout, r.stderr) == (0, "out\n/tmp\nb\n", "err\n")
    assert "".join(out) == r.stdout
    assert rejects(CommandExitException, lambda: sbx.commands.run("exit 3")).exit_code == 3
    rejects(TimeoutException, lambda: sbx.commands.run("sleep 60", timeout=0.5))
    rejects(Exception, lambda: sbx.commands.run("true", cwd="/nowhere"))


@works("commands.run, in the background")
def _():
    handle = sbx.commands.run('read x; echo "got $x"; exit 4', background=True, stdin=True)
    sbx.commands.send_stdin(handle.pid, "hello\n")
    e = rejects(CommandExitException, handle.wait)
    assert (e.exit_code, e.stdout) == (4, "got hello\n")


@works("commands.list")
def _():
    handle = sbx.commands.run("sleep 60", background=True)
    assert any(p.pid == handle.pid and p.args == ["-l", "-c", "sleep 60"] for p in sbx.commands.list())
    assert sbx.commands.kill(handle.pid)
    assert not any(p.pid == handle.pid for p in sbx.commands.list())
    assert not sbx.commands.kill(handle.pid)


@works("commands.kill")
def _():
    handle = sbx.commands.run("sleep 60", background=True)
    assert handle.kill()
    rejects(CommandExitException, handle.wait)


@works("commands.connect")
def _():
    handle = sbx.commands.run('read x; echo "late $x"; exit 5', background=True, stdin=True)
    handle.disconnect()
    again = sbx.commands.connect(handle.pid)
    sbx.commands.send_stdin(handle.pid, "word\n")
    e = rejects(CommandExitException, again.wait)
    assert (e.exit_code, e.stdout) == (5, "late word\n")
    rejects(NotFoundException, lambda: sbx.commands.connect(999999))


@works("commands.closeStdin")
def _():
    handle = sbx.commands.run("cat", background=True, stdin=True)
    handle.send_stdin("abc")
    handle.close_stdin()
    assert handle.wait().stdout == "abc"


@works("files.write")
def _():
    info = sbx.files.write("dir/a.txt", "hi")
    assert (info.path, info.name) == ("/workspace/dir/a.txt", "a.txt")
    sbx.files.write("blob.bin", bytes([0, 255, 10]))
    sbx.files.write("it's a \u00fc name.txt", "odd")
    assert sbx.commands.run('cat "it\'s a \u00fc name.txt"; wc -c <blob.bin').stdout == "odd3\n"


@works("files.writeFiles")
def _():
    infos = sbx.files.write_files([{"path": "m/1.txt", "data": "1"}, {"path": "m/2.txt", "data": "2"}])
    assert [i.path for i in infos] == ["/workspace/m/1.txt", "/workspace/m/2.txt"]


@works("files.read")
def _():
    assert sbx.files.read("dir/a.txt") == "hi"
    assert bytes(sbx.files.read("blob.bin", format="bytes")) == bytes([0, 255, 10])
    assert b"".join(sbx.files.read("dir/a.txt", format="stream")) == b"hi"
    sbx.files.write("empty", "")
    assert sbx.files.read("empty") == ""
    rejects(NotFoundException, lambda: sbx.files.read("nope"))


@works("files.read and write, 20 MB")
def _():
    sbx.files.write("large.bin", b"\7" * 20_000_000)
    assert len(sbx.files.read("large.bin", format="bytes")) == 20_000_000
    sbx.files.remove("large.bin")


@works("files.list")
def _():
    assert sorted(e.path for e in sbx.files.list("m")) == ["/workspace/m/1.txt", "/workspace/m/2.txt"]
    assert any(e.path == "/workspace/m/1.txt" for e in sbx.files.list(".", depth=2))
    rejects(NotFoundException, lambda: sbx.files.list("nope"))


@works("files.exists")
def _():
    assert sbx.files.exists("dir/a.txt") and not sbx.files.exists("dir/b.txt")


@works("files.getInfo")
def _():
    info = sbx.files.get_info("dir/a.txt")
    assert (info.size, info.permissions, info.owner) == (2, "-rw-r--r--", "user")


@works("files.makeDir")
def _():
    assert sbx.files.make_dir("x/y/z") and not sbx.files.make_dir("x/y/z")


@works("files.rename")
def _():
    assert sbx.files.rename("m/1.txt", "n/one.txt").path == "/workspace/n/one.txt"
    rejects(NotFoundException, lambda: sbx.files.rename("nope", "other"))


@works("files.remove")
def _():
    sbx.files.remove("n")
    assert not sbx.files.exists("n")


@works("files.watchDir")
def _():
    watch = sbx.files.watch_dir("dir", recursive=True)
    sbx.commands.run("mkdir dir/sub && echo 1 >dir/w && mv dir/w dir/v && rm dir/v")
    events = []

    def fetched():
        events.extend((e.type.value, e.name) for e in watch.get_new_events())
        return ("remove", "v") in events

    soon(fetched)
    for e in [("create", "w"), ("write", "w"), ("rename", "w"), ("create", "v")]:
        assert e in events, f"{e} is not in {events}"
    watch.stop()
    rejects(NotFoundException, lambda: sbx.files.watch_dir("nope"))


@works("sandbox.downloadUrl")
def _():
    with urllib.request.urlopen(sbx.download_url("dir/a.txt")) as got:
        assert got.read() == b"hi"


@works("pty")
def _():
    pty = sbx.pty.create(PtySize(rows=24, cols=80), envs={"IN": "pty"})
    sbx.pty.resize(pty.pid, PtySize(rows=33, cols=101))
    sbx.pty.send_stdin(pty.pid, b'echo "$(stty size) $IN"; exit\n')
    got = []
    pty.wait(on_pty=got.append)
    assert b"33 101 pty" in b"".join(got)


@works("git")
def _():
    sbx.git.init("repo")
    sbx.git.configure_user("A", "a@example.com", scope="local", path="repo")
    sbx.files.write("repo/f", "1")
    sbx.git.add("repo")
    sbx.git.commit("repo", "first")
    assert sbx.commands.run("git -C repo log --format=%s").stdout == "first\n"


@works("sandbox.createSnapshot")
def _():
    sbx.files.write("kept.txt", "of the snapshot")
    snapshot = sbx.create_snapshot()
    sbx.files.write("kept.txt", "changed")
    assert [s.snapshot_id for s in sbx.list_snapshots().next_items()] == [snapshot.snapshot_id]
    one = Sandbox.create(snapshot.snapshot_id, timeout=60)
    assert one.files.read("kept.txt") == "of the snapshot"
    one.kill()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)


@works("sandbox.fork")
def _():
    for one in sbx.fork(count=2, timeout=60):
        one = getattr(one, "sandbox", one)
        assert one.files.read("kept.txt") == "changed"
        one.kill()


@works("sandbox.updateNetwork")
def _():
    sbx.update_network({"allow_out": ["api.example.com"], "deny_out": ["0.0.0.0/0"]})


@works("Sandbox.create, its network")
def _():
    one = Sandbox.create(timeout=60, network={"allow_out": ["api.example.com"], "deny_out": ["0.0.0.0/0"]})
    assert one.get_info().network
    one.kill()


@refused("Sandbox.create, ranges of addresses")
def _():
    Sandbox.create(network={"deny_out": ["198.51.100.0/24"]})


@refused("files.write, metadata")
def _():
    sbx.files.write("meta.txt", "x", metadata={"a": "b"})


@refused("Volume.create")
def _():
    Volume.create("data")


@works("Secret.create")
def _():
    made = Secret.create("their-key", "value")
    assert (made.name, made.version) == ("their-key", 1)
    rejects(SecretException, lambda: Secret.create("their-key", "another"))


@works("Secret.update")
def _():
    assert Secret.update("their-key", "another").version == 2


@works("Secret.getInfo")
def _():
    assert Secret.get_info("their-key").version == 2
    rejects(SecretNotFoundException, lambda: Secret.get_info("nope"))


@works("Secret.exists")
def _():
    assert [Secret.exists("their-key"), Secret.exists("nope")] == [True, False]


@works("Secret.list")
def _():
    assert [s.name for s in Secret.list().next_items()] == ["their-key"]


def by_secret(value):
    return {"allow_out": ["api.example.com"], "rules": {"api.example.com": [{"transform": {"headers": {"Authorization": value}}}]}}


@works("Sandbox.create, network.rules")
def _():
    one = Sandbox.create(timeout=60, network=by_secret("Bearer " + Secret.fill("their-key")))
    one.update_network({"allow_out": ["api.example.com"]})
    one.kill()


@refused("Sandbox.create, network.rules of plain values")
def _():
    Sandbox.create(network=by_secret("plain"))


@works("Secret.destroy")
def _():
    assert [Secret.destroy("their-key"), Secret.destroy("their-key")] == [True, False]


@works("the asynchronous client")
def _():
    async def all_of_it():
        one = await AsyncSandbox.create(timeout=60)
        runs = await asyncio.gather(*[one.commands.run(f"echo {i}") for i in range(20)])
        assert [r.stdout for r in runs] == [f"{i}\n" for i in range(20)]
        await one.files.write("a", "1")
        events = []
        watch = await one.files.watch_dir(".", on_event=events.append)
        await one.files.write("b", "1")
        for _ in range(200):
            if events:
                break
            await asyncio.sleep(0.05)
        assert events
        await watch.stop()
        await one.kill()

    asyncio.run(all_of_it())


@works("sandbox.pause")
def _():
    sbx.pause()
    assert not sbx.is_running() and sbx.get_info().state == SandboxState.PAUSED
    rejects(Exception, lambda: sbx.commands.run("true"))
    assert Sandbox.connect(sbx.sandbox_id, timeout=60).commands.run("cat kept.txt").stdout == "changed"


@works("sandbox.kill")
def _():
    assert sbx.kill() and not sbx.kill() and not sbx.is_running()
    rejects(Exception, lambda: sbx.commands.run("true"))
    rejects(NotFoundException, lambda: Sandbox.connect(sbx.sandbox_id))


@works("errors")
def _():
    rejects(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))
    assert "no template" in str(rejects(Exception, lambda: Sandbox.create("no-such-template")))
    rejects(NotFoundException, lambda: Sandbox.connect("aaaaaaaaaaaaaaaaaaaa"))
