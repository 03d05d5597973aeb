"""Bad input with the SDK of E2B for Python."""

import json

from e2b import FilesystemEventType, InvalidArgumentException, NotEnoughSpaceException, PtySize, Sandbox, SandboxException


def tried(method):
    def run(call):
        try:
            call()
            print(json.dumps({"method": method, "result": "works"}), flush=True)
        except Exception as e:  # noqa: BLE001
            print(json.dumps({"method": method, "result": "fails", "note": f"{type(e).__name__}: {e}"[:900]}), flush=True)
    return run


def rejects(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError("it was not refused")


def two_gigabytes():
    piece = bytes(1 << 20)
    for _ in range(2048):
        yield piece


sbx = Sandbox.create(timeout=300)


@tried("2 GB")
def _():
    rejects(NotEnoughSpaceException, lambda: sbx.files.write("large", two_gigabytes()))
    assert not sbx.files.exists("large")
    sbx.files.write("small", "there is room again")


@tried("sizes of terminals")
def _():
    sizes = [PtySize(cols=0, rows=24), PtySize(cols=65535, rows=65535)]
    for size in sizes:
        rejects(InvalidArgumentException, lambda size=size: sbx.pty.create(size))
    pty = sbx.pty.create(PtySize(cols=80, rows=24))
    for size in sizes:
        rejects(InvalidArgumentException, lambda size=size: sbx.pty.resize(pty.pid, size))
    assert sbx.pty.kill(pty.pid)


@tried("a watch of a directory that goes")
def _():
    sbx.files.make_dir("going")
    watch = sbx.files.watch_dir("going", recursive=True)
    sbx.commands.run("rm -rf going; mkdir going; rm -rf going")
    try:
        while not any(e.type == FilesystemEventType.REMOVE for e in watch.get_new_events()):
            pass
        watch.stop()
    except SandboxException:
        pass  # it has ended
    assert sbx.commands.run("echo alive").stdout == "alive\n"


@tried("a paused sandbox")
def _():
    sbx.pause()
    for call in [
        lambda: sbx.commands.run("true"), lambda: sbx.commands.list(), lambda: sbx.files.read("small"), lambda: sbx.files.write("x", "y"),
        lambda: sbx.files.list("."), lambda: sbx.files.watch_dir("."), lambda: sbx.pty.create(PtySize(cols=80, rows=24)),
    ]:
        rejects(SandboxException, call)
    assert not sbx.is_running()
    assert Sandbox.connect(sbx.sandbox_id).files.read("small") == "there is room again"


sbx.kill()
