"""Calls tools as a model's client does, and prints a line of JSON for each.

    python3 everything.py http|stdio

MCP_URL and MCP_KEY say where the server is, SKETE is the program, for stdio.
"""

import asyncio
import json
import os
import re
import sys

from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import Implementation

way = sys.argv[1]
env = os.environ


def transport():
    if way == "http":
        http = create_mcp_http_client(headers={"Authorization": f"Bearer {env['MCP_KEY']}"})
        return streamable_http_client(env["MCP_URL"] + "/mcp", http_client=http)
    return stdio_client(
        StdioServerParameters(command=env["SKETE"], args=["mcp"], env={**env, "SKETE_URL": env["MCP_URL"], "SKETE_KEY": env["MCP_KEY"]})
    )


def show(method, result, note=""):
    print(json.dumps({"method": method, "result": result, "note": note[:500]}), flush=True)


async def main():
    async with Client(transport(), client_info=Implementation(name="their-notebook", version="7")) as client:

        async def call(tool, progress=None, /, **args):
            res = await client.call_tool(tool, args, progress_callback=progress)
            text = "\n".join(getattr(c, "text", "") for c in res.content)
            if res.is_error:
                raise RuntimeError(text)
            return text

        async def parsed(tool, /, **args):
            return json.loads(await call(tool, **args))

        async def soon(done):
            for _ in range(400):
                if await done():
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("it did not come")

        async def works(method, f):
            try:
                await f()
                show(method, "works")
            except Exception as e:
                show(method, "fails", f"{type(e).__name__}: {e}")

        async def refused(method, f, says):
            try:
                await f()
                show(method, "fails", "it was not refused")
            except Exception as e:
                show(method, "refused" if re.search(says, str(e)) else "fails", f"{type(e).__name__}: {e}")

        sandbox = (await parsed("sandbox_create", name=f"mcp-py-{way}", ttl_minutes=10))["id"]
        on = {"sandbox": sandbox}

        async def created():
            assert sandbox.startswith("sbx_")

        async def listed():
            assert any(s["id"] == sandbox for s in (await parsed("sandbox_list"))["items"])

        async def got():
            assert (await parsed("sandbox_get", **on))["isolation"] == "user-kernel"

        async def ran():
            assert await call("exec", **on, command="pwd; cat", stdin="in\n") == "/workspace\nin\n[exit code 0]"

        async def progressed():
            heard = []

            async def hear(progress, total, message):
                heard.append(progress)

            await call("exec", hear, **on, command="sleep 1.5")
            assert heard == [1], heard

        async def cancelled():
            async def running():
                return "sleep 1001" in await call("process_list", **on, running=True)

            async def stopped():
                return not await running()

            task = asyncio.create_task(call("exec", **on, command="sleep 1001"))
            await soon(running)
            task.cancel()
            try:
                await task
                raise AssertionError("it was not cancelled")
            except asyncio.CancelledError:
                pass
            await soon(stopped)

        async def background():
            process = (await parsed("exec", **on, command="echo one; cat; sleep 1000", stdin="two\n", background=True))["process"]

            async def there():
                return (await call("process_output", **on, process=process)).startswith("one\ntwo\n[running]")

            await soon(there)
            await call("process_kill", **on, process=process)
            assert "exit code 137" in await call("process_output", **on, process=process, wait_seconds=30)

        async def wrote():
            await call("file_write", **on, path="notes/ä.txt", content="one\ntwo\n")

        async def read():
            assert await call("file_read", **on, path="notes/ä.txt") == "one\ntwo\n"

        async def edited():
            await call("file_edit", **on, path="/workspace/notes/ä.txt", old="two", new="2")
            assert await call("exec", **on, command="cat notes/*") == "one\n2\n[exit code 0]"

        async def resource():
            res = await client.read_resource(f"skete://sandbox/{sandbox}/workspace/notes/%C3%A4.txt")
            assert res.contents[0].text == "one\n2\n"

        async def removed():
            await call("file_remove", **on, path="notes", recursive=True)

        async def history():
            who = (await parsed("history_list", **on))["items"][0]["who"]
            assert "their-app by their-notebook 7" in who, who

        async def undone():
            await call("history_undo", **on)
            assert await call("file_read", **on, path="notes/ä.txt") == "one\n2\n"

        async def gone():
            await call("sandbox_remove", **on)

        async def missing():
            await call("exec", **on, command="true")

        async def wrong():
            await call("exec", **on, command=7)

        async def unknown():
            await call("no_such_tool")

        await works("sandbox_create", created)
        await works("sandbox_list", listed)
        await works("sandbox_get", got)
        await works("exec", ran)
        await works("exec, progress", progressed)
        await works("exec, cancelled", cancelled)
        await works("exec, in the background", background)
        await works("file_write", wrote)
        await works("file_read", read)
        await works("file_edit", edited)
        await works("resources, a file", resource)
        await works("file_remove", removed)
        await works("history_list", history)
        await works("history_undo", undone)
        await works("sandbox_remove", gone)
        await refused("a sandbox that is not there", missing, "sbx_")
        await refused("arguments that do not fit", wrong, "schema|7")
        await refused("a tool that is not there", unknown, "no_such_tool")


asyncio.run(main())
