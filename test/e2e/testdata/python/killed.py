"""Reads what a command writes while the server is killed and started again, and waits for two others meanwhile."""

import asyncio
import json
import sys
import threading

from skete import AsyncSkete, Skete

COUNT = "i=0; while [ $i -lt 200 ]; do echo line $i; echo err $i >&2; i=$((i+1)); sleep 0.02; done; exit 7"
ONCE = "echo begun >> runs; sleep 4; echo after"


async def run_async(id: str) -> str:
    async with AsyncSkete() as skete:
        return (await skete.sandbox(id).run_command(ONCE)).stdout


with Skete() as skete:
    sandbox = skete.create()
    results: list[str] = []
    others = [threading.Thread(target=lambda: results.append(sandbox.run_command(ONCE).stdout)),
              threading.Thread(target=lambda: results.append(asyncio.run(run_async(sandbox.id))))]
    for t in others:
        t.start()
    while not sandbox.files.exists("runs") or sandbox.files.stat("runs")["size"] < 12:
        pass
    process = sandbox.start_command(COUNT)
    got: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    told = False
    for piece in process:
        assert piece.lost == 0 and piece.offset == len(got[piece.stream]), piece
        got[piece.stream] += piece.data
        if not told and b"line 20\n" in got["stdout"]:
            print("begun", flush=True)
            told = True
            sys.stdin.readline()
    for t in others:
        t.join()
    whole = all(got[s] == b"".join(b"%s %d\n" % (w, i) for i in range(200)) for s, w in (("stdout", b"line"), ("stderr", b"err")))
    print(json.dumps({"whole": whole, "code": process.exit_code, "results": results, "runs": sandbox.files.read_text("runs")}))
