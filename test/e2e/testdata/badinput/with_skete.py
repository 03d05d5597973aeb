"""Bad input with our own package."""

import json
import tarfile

import skete


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


def tar():
    info = tarfile.TarInfo("large")
    info.size = 2 << 30
    yield info.tobuf()
    yield from two_gigabytes()


sandbox = skete.Skete().create()


@tried("2 GB")
def _():
    rejects(skete.LimitError, lambda: sandbox.files.write("large", two_gigabytes()))
    rejects(skete.LimitError, lambda: sandbox.files.upload_tree(".", tar()))
    sandbox.run_command("rm -f large")
    sandbox.files.write("small", "there is room again")


@tried("sizes of terminals")
def _():
    sizes = [(0, 24), (65535, 65535)]
    for size in sizes:
        rejects(skete.InvalidError, lambda size=size: sandbox.start_command("true", terminal=size))
    command = sandbox.start_command("sleep 600", terminal=(80, 24))
    for size in sizes:
        rejects(skete.InvalidError, lambda size=size: command.resize(*size))
    command.kill()


@tried("a paused sandbox")
def _():
    sandbox.pause()
    assert sandbox.files.read("small") == b"there is room again"  # the call has woken it
    sandbox.pause()
    assert sandbox.run_command("echo awake").stdout == "awake\n"


sandbox.remove()
