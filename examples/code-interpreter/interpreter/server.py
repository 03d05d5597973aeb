"""Runs code of clients in Jupyter kernels, by the protocol of E2B's code interpreter: an
execution is answered by a line of JSON for each thing that happens.

It is started by the template, at PORT, which is open when the default kernel can be used.
What is asked for is in main(); what an execution does is in Context.execute.
"""

import asyncio
import json
import os
import re
import shlex
import sys
import time
import uuid

from jupyter_client.manager import AsyncKernelManager

from limits import OUTPUT_MAX, RESULTS_MAX, beyond, size_of
from web import Gone, Refused, serve

PORT = 49999
CWD = "/workspace"
START_TIMEOUT = 60
KEEPALIVE = 5  # seconds without a word, so that a client that vanished is noticed
LOOK = 0.25  # seconds, how often a kernel is looked at
STUBBORN = 10  # seconds that an abandoned execution may ignore an interrupt, if another one waits
INTERRUPT_AGAIN = 2
CONTEXTS_MAX = 64
DEFAULTS = ("python", "javascript")  # their contexts are listed from the beginning
ALIASES = {"py": "python", "python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript", "sh": "bash"}
KERNELS = {"python": "ipython"}  # python is what jupyter_client calls its own
LANGUAGES = ("python", "javascript", "typescript", "bash")

FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/vnd.interpreter.data+json": "data",
    "application/vnd.interpreter.chart+json": "chart",
}


def result(bundle, main):
    """A result as clients know it; a text that is a quoted one is without its quotes."""
    line = {"type": "result", "is_main_result": main, "extra": {}}
    for mime, value in bundle.items():
        if mime in FIELDS:
            line[FIELDS[mime]] = value
        else:  # one SDK looks here, and the other one there
            line["extra"][mime] = line[mime] = value
    text = line.get("text")
    if text and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        line["text"] = text[1:-1]
    return line


def error(name, value, trace=()):
    return {"type": "error", "name": name, "value": value, "traceback": "\n".join(trace)}


def output(stream, text):
    return {"type": stream, "text": text, "timestamp": time.time_ns()}


def setting(language, values):
    """Code that sets variables of the environment; None = that is removed."""
    if language == "python":
        texts = {k: v for k, v in values.items() if v is not None}
        gone = [k for k, v in values.items() if v is None]
        return f"(lambda e: (e.update({texts!r}), [e.pop(k, None) for k in {gone!r}]))(__import__('os').environ)"
    if language == "bash":
        return "\n".join(f"unset {k}" if v is None else f"export {k}={shlex.quote(v)}" for k, v in values.items())
    name = json.dumps
    return ";".join(f"delete process.env[{name(k)}]" if v is None else f"process.env[{name(k)}] = {name(v)}" for k, v in values.items()) + ";undefined"


class Execution:
    """One execute request, and what the kernel said of it and was not sent yet."""

    def __init__(self, silent):
        self.silent = silent
        self.lines = asyncio.Queue()
        self.replied = self.idle = self.failed = False
        self.output_left, self.results_left = OUTPUT_MAX, RESULTS_MAX

    def put(self, line):
        self.lines.put_nowait(line)

    def take(self, kind, content):
        """Takes a message of the kernel. What is sent is bounded here too: a client may
        read slowly, and kernels do not wait."""
        if kind == "status" and content["execution_state"] == "idle":
            self.idle = True
        elif kind == "execute_reply":
            self.replied = content  # what was written and shown comes by another way, and may be later
        elif kind == "execute_input" and not self.silent:
            self.put({"type": "number_of_executions", "execution_count": content["execution_count"]})
        elif kind == "error":
            self.fail(content)
        elif kind == "stream":
            self.write(content["name"], content["text"])
        elif kind in ("display_data", "execute_result") and not self.silent:
            self.show(content["data"], kind == "execute_result")
        if self.idle and self.replied:
            self.end(self.replied)

    def end(self, reply):
        if reply["status"] == "error":
            self.fail(reply)
        elif reply["status"] != "ok":
            self.put(error("ExecutionAborted", "the execution was aborted"))
        self.put(None)

    def fail(self, content):
        if not self.failed:
            self.failed = True
            self.put(error(content.get("ename", ""), content.get("evalue", ""), content.get("traceback", [])))

    def write(self, stream, text):
        if self.output_left <= 0:
            return
        self.put(output(stream, text[: self.output_left]))
        self.output_left -= len(text)
        if self.output_left <= 0:
            self.put(output("stderr", "\n" + beyond(OUTPUT_MAX)))

    def show(self, bundle, main):
        if self.results_left <= 0:
            return
        self.results_left -= size_of(bundle)
        if self.results_left <= 0:
            self.put(output("stderr", f"results beyond {RESULTS_MAX} bytes are left out\n"))
        else:
            self.put(result(bundle, main))


class Context:
    """A kernel. Executions take turns."""

    def __init__(self, language, cwd):
        self.id, self.language, self.cwd = str(uuid.uuid4()), language, cwd
        self.turn = asyncio.Lock()
        self.manager = self.client = None
        self.readers = []
        self.executions = {}  # by the id of the request
        self.abandoned = None  # since when an execution goes on whose client has left
        self.note = None  # what the next execution is to be told
        self.removed = False

    def view(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        """Starts the kernel, if there is none."""
        if self.manager is not None:
            return
        manager = AsyncKernelManager(kernel_name=KERNELS.get(self.language, self.language))
        try:
            await manager.start_kernel(cwd=self.cwd, env=dict(os.environ))
            client = manager.client()
            client.start_channels(stdin=False, hb=False)
            await client.wait_for_ready(timeout=START_TIMEOUT)
        except Exception as e:
            await manager.shutdown_kernel(now=True)
            raise Refused(500, f"the kernel of {self.language} does not start: {e}") from e
        self.manager, self.client = manager, client
        self.readers = [asyncio.create_task(self.read(get)) for get in (client.get_iopub_msg, client.get_shell_msg)]

    async def read(self, get):
        while True:
            message = await get(timeout=None)
            execution = self.executions.get(message["parent_header"].get("msg_id"))
            if execution:
                execution.take(message["header"]["msg_type"], message["content"])

    async def stop(self):
        """Ends the kernel. An execution that goes on in it ends."""
        manager, client, readers = self.manager, self.client, self.readers
        self.manager = self.client = self.abandoned = None
        self.readers = []
        for reader in readers:
            reader.cancel()
        if manager:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)

    async def restart(self):
        await self.stop()
        self.note = None
        async with self.turn:
            await self.start()

    async def remove(self):
        self.removed = True
        await self.stop()

    def request(self, code, silent):
        execution = Execution(silent)
        key = self.client.execute(code, silent=silent, store_history=not silent, allow_stdin=False)
        self.executions[key] = execution
        return key, execution

    async def quietly(self, code):
        """Runs code of ours; it returns the error line, if there is one."""
        key, execution = self.request(code, silent=True)
        try:
            failed = None
            async for line in self.lines(execution, self.manager):
                if line["type"] == "error":
                    failed = line
            return failed
        finally:
            self.executions.pop(key, None)

    async def lines(self, execution, manager):
        """What an execution does, until its end. It also ends where the kernel does."""
        heard = time.monotonic()
        while True:
            try:
                line = await asyncio.wait_for(execution.lines.get(), LOOK)
            except TimeoutError:
                if not await self.lives(manager):
                    yield await self.died(manager)
                    yield {"type": "unexpected_end_of_execution"}
                    return
                if time.monotonic() - heard > KEEPALIVE:
                    heard = time.monotonic()
                    yield {"type": "keepalive"}
                continue
            if line is None:
                return
            heard = time.monotonic()
            yield line

    async def lives(self, manager):
        return self.manager is manager and await manager.is_alive()

    async def died(self, manager):
        """The error line of an execution whose kernel is gone."""
        if self.manager is not manager:  # by a request of a client
            return error("ContextRestarting", "the context was removed" if self.removed else "the context was restarted")
        status = manager.provisioner.process.poll()
        await self.stop()
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return error("KernelDied", f"the kernel ended with {how}; the context has a new one, which knows no variables")

    async def execute(self, code, env, request):
        """Runs code and sends what happens. If the client leaves, the code is interrupted."""
        left = asyncio.create_task(request.left())
        try:
            async with Turn(self, left):
                await self.told(code, env, request, left)
        finally:
            left.cancel()

    async def told(self, code, env, request, left):
        if self.removed:
            raise Refused(404, f"Context {self.id} not found")
        if self.manager and not await self.manager.is_alive():
            await self.stop()
            self.note = "the kernel had ended; this is a new one, which knows no variables\n"
        await self.start()
        if self.note:
            await request.line(output("stderr", self.note))
            self.note = None
        failed = await self.quietly(setting(self.language, env)) if env else None
        if failed:
            await request.line(failed)
        else:
            await self.run(code, request, left)
            if env and self.manager:
                await self.quietly(setting(self.language, {k: os.environ.get(k) for k in env}))
        await request.line({"type": "end_of_execution"})
        await request.end()

    async def run(self, code, request, left):
        key, execution = self.request(code, silent=False)
        manager = self.manager
        sent = asyncio.create_task(self.send(execution, manager, request))
        try:
            await asyncio.wait([left, sent], return_when=asyncio.FIRST_COMPLETED)
            if not sent.done():
                raise Gone
            await sent
        except Gone:
            sent.cancel()
            await self.abandon(key, execution, manager)
            raise
        finally:
            if not self.abandoned:
                self.executions.pop(key, None)

    async def send(self, execution, manager, request):
        async for line in self.lines(execution, manager):
            await request.line(line)

    async def abandon(self, key, execution, manager):
        """Interrupts an execution whose client has left, until it ends. One that does not
        end goes on until another one waits for the kernel: then that is ended."""
        if not await self.lives(manager):
            return
        self.abandoned = time.monotonic()
        execution.output_left = execution.results_left = 0
        self.ending = asyncio.create_task(self.end_abandoned(key, execution, manager))

    async def end_abandoned(self, key, execution, manager):
        async def gone():
            async for _ in self.lines(execution, manager):
                pass

        ended = asyncio.create_task(gone())
        while not ended.done() and await self.lives(manager):
            try:
                await manager.interrupt_kernel()
            except Exception:  # it has ended meanwhile
                break
            await asyncio.wait([ended], timeout=INTERRUPT_AGAIN)
        await asyncio.wait([ended], timeout=START_TIMEOUT)
        ended.cancel()
        self.executions.pop(key, None)
        self.abandoned = None

    async def settled(self):
        """Waits until an execution whose client has left has ended, or ends its kernel."""
        while self.abandoned:
            if time.monotonic() - self.abandoned > STUBBORN:
                await self.stop()
                self.note = "the kernel did not end what was abandoned; this is a new one, which knows no variables\n"
                return
            await asyncio.sleep(LOOK / 5)


class Turn:
    """The turn of an execution, unless its client leaves before."""

    def __init__(self, context, left):
        self.context, self.left = context, left

    async def __aenter__(self):
        waits = asyncio.create_task(self.wait())
        await asyncio.wait([waits, self.left], return_when=asyncio.FIRST_COMPLETED)
        if not waits.done():
            waits.cancel()
            raise Gone
        await waits

    async def wait(self):
        await self.context.turn.acquire()
        try:
            await self.context.settled()
        except BaseException:
            self.context.turn.release()
            raise

    async def __aexit__(self, *_):
        self.context.turn.release()


class Interpreter:
    """All contexts, and the requests for them."""

    def __init__(self):
        self.contexts = {}
        self.defaults = {}  # contexts by language
        for language in DEFAULTS:
            self.default(language)

    def default(self, language):
        context = self.contexts.get(self.defaults.get(language))
        return context or self.add(language, CWD, default=True)

    def add(self, language, cwd, default=False):
        if len(self.contexts) >= CONTEXTS_MAX:
            raise Refused(400, f"there are {CONTEXTS_MAX} contexts already")
        context = Context(language, cwd)
        self.contexts[context.id] = context
        if default:
            self.defaults[language] = context.id
        return context

    @staticmethod
    def language(name):
        if name is None:
            return LANGUAGES[0]
        name = str(name).strip().lower()
        name = ALIASES.get(name, name)
        if name not in LANGUAGES:
            raise Refused(400, f"there is no kernel for {name[:40]}; there are {', '.join(LANGUAGES)}")
        return name

    def context(self, key):
        if key not in self.contexts:
            raise Refused(404, f"Context {str(key)[:80]} not found")
        return self.contexts[key]

    async def handle(self, request):
        key = re.fullmatch(r"/contexts/([^/]+)(/restart)?", request.path)
        match request.method, request.path:
            case "GET", "/health":
                await request.answer(200, "OK")
            case "POST", "/execute":
                await self.execute(request)
            case "GET", "/contexts":
                await request.answer(200, [c.view() for c in self.contexts.values()])
            case "POST", "/contexts":
                await self.create(request)
            case "POST", _ if key and key[2]:
                await self.context(key[1]).restart()
                await request.answer(200, None)
            case "DELETE", _ if key and not key[2]:
                context = self.context(key[1])
                del self.contexts[context.id]
                await context.remove()
                await request.answer(200, None)
            case _:
                raise Refused(404, f"there is no {request.method[:10]} {request.path[:80]}")

    async def create(self, request):
        asked = request.json()
        language = self.language(asked.get("language"))
        cwd = asked.get("cwd") or CWD
        if not isinstance(cwd, str) or not os.path.isdir(cwd):
            raise Refused(400, f"there is no directory {str(cwd)[:200]}")
        context = self.add(language, os.path.abspath(cwd))
        try:
            async with context.turn:
                await context.start()
        except BaseException:
            self.contexts.pop(context.id, None)
            raise
        await request.answer(200, context.view())

    async def execute(self, request):
        asked = request.json()
        code, key, language, env = (asked.get(k) for k in ("code", "context_id", "language", "env_vars"))
        if not isinstance(code, str):
            raise Refused(400, "code is a text")
        if key and language:
            raise Refused(400, "Only one of context_id or language can be provided")
        env = env or {}
        if not isinstance(env, dict) or not all(isinstance(v, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", k) for k, v in env.items()):
            raise Refused(400, "env_vars are texts by names of letters, digits and _")
        context = self.context(key) if key else self.default(self.language(language))
        await context.execute(code, env, request)


async def main():
    interpreter = Interpreter()
    await interpreter.default(LANGUAGES[0]).start()
    await serve("127.0.0.1", PORT, interpreter.handle)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    asyncio.run(main())
