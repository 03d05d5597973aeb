"""The asynchronous client. skete/_sync.py is made of this file by generate.py: change this one."""

from __future__ import annotations

import asyncio
import json
import os
import signal as signals
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, cast

import httpx

from . import _core, errors, types
from ._core import Config, Output, Result, ServerEvent, given, segment

__all__ = ["AsyncFiles", "AsyncHistory", "AsyncProcess", "AsyncRun", "AsyncSandbox", "AsyncSkete"]


class AsyncTransport:
    """Requests with bounded repetition, and streams that come back after a disconnect."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._socket_fd = -1
        uds = None
        if config.socket:
            uds, self._socket_fd = config.reach_socket()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
        self._http = httpx.AsyncClient(
            headers=config.headers,
            follow_redirects=False,  # a key must not travel to where a redirect points
            timeout=httpx.Timeout(None, connect=10.0),
            limits=limits,
            trust_env=uds is None,
            transport=httpx.AsyncHTTPTransport(uds=uds, limits=limits) if uds else None,
        )

    async def aclose(self) -> None:
        await self._http.aclose()
        if self._socket_fd >= 0:
            os.close(self._socket_fd)
            self._socket_fd = -1

    async def fetch(self, method: str, path: str, *, repeatable: bool | None = None, patient: bool = False, **request: Any) -> Any:
        """The JSON of an answer.

        A call is repeated a few times after a temporary error if it is ``repeatable`` (by default: GET); a
        ``patient`` one for as long as a broken stream tries to come back, so that a restarted server is awaited.
        """
        body = await self.read(method, path, repeatable=repeatable, patient=patient, **request)
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError as e:
            raise errors.InternalError("the server's answer is not what was agreed",
                                       hint=f"is {self.config.base} a skete server?") from e

    async def read(self, method: str, path: str, *, repeatable: bool | None = None, patient: bool = False, **request: Any) -> bytes:
        """The whole body of an answer."""
        repeatable = method == "GET" if repeatable is None else repeatable
        broken, attempt = 0.0, 0
        while True:
            attempt += 1
            try:
                response = await self._open(method, path, **request)
                try:
                    return await response.aread()
                except httpx.TransportError as e:
                    raise _broken(e) from e
                finally:
                    await response.aclose()
            except errors.UnavailableError as e:
                now = time.monotonic()
                broken = broken or now
                over = now - broken > self.config.reconnect if patient else attempt == _core.ATTEMPTS_MAX
                if not repeatable or over:
                    raise
                wait = max(e.retry_after, _core.backoff(attempt))
            await asyncio.sleep(wait)

    async def stream(self, path: str, *, headers: dict[str, str] | None = None, query: dict[str, Any] | None = None) -> httpx.Response:
        """An answer whose body is read by the caller, who closes it."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._open("GET", path, headers=headers, query=query)
            except errors.UnavailableError as e:
                if attempt == _core.ATTEMPTS_MAX:
                    raise
                wait = max(e.retry_after, _core.backoff(attempt))
            await asyncio.sleep(wait)

    async def events(self, path: str, query: dict[str, Any] | None = None, *, finite: bool = False) -> AsyncIterator[ServerEvent]:
        """The events of a stream, over as many connections as it takes, none left out and none twice.

        The caller stops after the last one, as it knows it; a ``finite`` stream ends by itself.
        """
        last, attempt, broken = "", 0, 0.0
        while True:
            headers = {"Accept": "text/event-stream"}
            if last:
                headers["Last-Event-ID"] = last
            try:
                response = await self._open("GET", path, query=query, headers=headers,
                                            timeout=httpx.Timeout(_core.SILENCE_MAX, connect=10.0))
                attempt, reader = 0, _core.EventReader()
                try:
                    async for chunk in response.aiter_raw():
                        for event in reader.feed(chunk):
                            if event.name == "problem":
                                raise errors.of_problem(json.loads(event.data))
                            yield event
                            last = event.id or last
                except httpx.TransportError as e:
                    raise _broken(e) from e
                finally:
                    await response.aclose()
                if finite:
                    return
                raise errors.UnavailableError("the server ended the stream")
            except errors.UnavailableError:
                now = time.monotonic()
                broken = broken if attempt else now
                attempt += 1
                if now - broken > self.config.reconnect:
                    raise
            await asyncio.sleep(_core.backoff(attempt))

    async def _open(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None,
                    content: Any = None, headers: dict[str, str] | None = None, timeout: httpx.Timeout | None = None) -> httpx.Response:
        """One attempt; the answer is a success, and its body not read yet."""
        headers = dict(headers or {})
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        url = self.config.base + path
        if text := _core.query_of(query or {}):
            url += "?" + text
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        try:
            request = self._http.build_request(method, url, content=content, headers=headers, **options)
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            try:
                answer = await response.aread()
            finally:
                await response.aclose()
        except httpx.InvalidURL as e:
            raise errors.InvalidError(f"the request cannot be written as a URL: {e}") from e
        except httpx.TransportError as e:
            raise _broken(e) from e
        raise errors.of_answer(response.status_code, answer, response.headers.get("Retry-After", ""), response.reason_phrase)


def _broken(e: httpx.TransportError) -> errors.SketeError:
    return errors.UnavailableError(f"the skete server does not answer: {e or type(e).__name__}",
                                   hint="is it running? `skete serve` starts it, `skete doctor` looks for what is wrong")


class AsyncSkete:
    """A client of one server.

    Args:
        url: ``http://host:port``, ``https://host`` or ``unix:///path/of/skete.sock``; default ``$SKETE_URL``,
            then the socket of this machine's server.
        key: an API key; default ``$SKETE_KEY``. A unix socket needs none.
        reconnect: for how many seconds a broken stream, or a command that is run, tries to reach the server again.

    Safe for concurrent use. Close it, or use it in a ``with`` statement.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, reconnect: float = 60.0) -> None:
        self._t = AsyncTransport(Config.of(url, key, reconnect))

    async def __aenter__(self) -> AsyncSkete:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Drops all connections."""
        await self._t.aclose()

    async def info(self) -> types.Info:
        """The server: its version, providers and limits."""
        return cast(types.Info, await self._t.fetch("GET", "/v1/info"))

    async def create(self, template: str | None = None, *, name: str | None = None, **spec: Any) -> AsyncSandbox:
        """Makes a sandbox and returns when it answers.

        ``spec`` has the other keys of ``types.CreateSandbox``: provider, memory_mb, network, persist, ttl_ms, env, …
        An attempt that is repeated after a broken connection never makes a second one.
        """
        made = await self._t.fetch("POST", "/v1/sandboxes", body=given(template=template, name=name, **spec), **_keyed())
        return AsyncSandbox(self._t, made["id"], made)

    def sandbox(self, id: str) -> AsyncSandbox:
        """A handle on a sandbox by its id or name; the server is not asked."""
        return AsyncSandbox(self._t, id)

    async def sandboxes(self, *, state: str | None = None, metadata: dict[str, str] | None = None) -> AsyncIterator[types.Sandbox]:
        """Goes through the sandboxes, newest first."""
        async for item in self._pages("/v1/sandboxes", {"state": state, "metadata": metadata}):
            yield cast(types.Sandbox, item)

    async def snapshots(self) -> list[types.Snapshot]:
        """All snapshots, newest first. ``create(**{"from": id})`` goes on from one."""
        return cast("list[types.Snapshot]", (await self._t.fetch("GET", "/v1/snapshots"))["items"])

    async def remove_snapshot(self, id: str) -> None:
        """Deletes a snapshot; sandboxes that were made from it go on."""
        await self._t.fetch("DELETE", f"/v1/snapshots/{segment(id)}", repeatable=True)

    async def templates(self) -> list[types.Template]:
        """What sandboxes can start from."""
        return cast("list[types.Template]", (await self._t.fetch("GET", "/v1/templates"))["items"])

    async def start_run(self, task: str, **spec: Any) -> AsyncRun:
        """Starts a run of an agent, which goes on without this client. ``spec`` has the other keys of ``types.StartRun``."""
        run = await self._t.fetch("POST", "/v1/runs", body=given(task=task, **spec), **_keyed())
        return AsyncRun(self._t, run["id"], run)

    def run(self, id: str) -> AsyncRun:
        """A handle on a run; the server is not asked."""
        return AsyncRun(self._t, id)

    async def runs(self, *, state: str | None = None, thread: str | None = None, agent: str | None = None,
                   labels: dict[str, str] | None = None) -> AsyncIterator[types.Run]:
        """Goes through the runs, newest first."""
        async for item in self._pages("/v1/runs", {"state": state, "thread": thread, "agent": agent, "label": labels}):
            yield cast(types.Run, item)

    async def approvals(self) -> list[types.Approval]:
        """All calls of agents that wait for a person."""
        return cast("list[types.Approval]", (await self._t.fetch("GET", "/v1/approvals"))["items"])

    async def request(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        """Makes any call of the API, such as ``("GET", "/v1/secrets")``, and returns the JSON of its answer."""
        return await self._t.fetch(method, path, query=query, body=body)

    async def _pages(self, path: str, query: dict[str, Any]) -> AsyncIterator[Any]:
        async for item in _pages(self._t, path, query):
            yield item


async def _pages(t: AsyncTransport, path: str, query: dict[str, Any]) -> AsyncIterator[Any]:
    while True:
        page = await t.fetch("GET", path, query=query)
        for item in page["items"]:
            yield item
        if not page.get("next_page_token"):
            return
        query = {**query, "page_token": page["next_page_token"]}


def _keyed() -> dict[str, Any]:
    """What makes a call that creates something safe to repeat."""
    return {"repeatable": True, "headers": {"Idempotency-Key": _core.new_key()}}


class AsyncSandbox:
    """One sandbox. It holds nothing of the sandbox's state but what it was when it was made here (``info``)."""

    def __init__(self, transport: AsyncTransport, id: str, info: types.Sandbox | None = None) -> None:
        self._t = transport
        self.id = id
        self.info = info  #: as the server answered when it was made by this client
        self._base = f"/v1/sandboxes/{segment(id)}"
        self.files = AsyncFiles(transport, self._base)
        self.history = AsyncHistory(transport, self._base + "/history")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.remove()

    async def get(self) -> types.Sandbox:
        """The sandbox as it is now."""
        return cast(types.Sandbox, await self._t.fetch("GET", self._base))

    async def update(self, **changes: Any) -> types.Sandbox:
        """Changes name, metadata, ttl_ms or idle_timeout_ms."""
        return cast(types.Sandbox, await self._t.fetch("PATCH", self._base, body=changes, repeatable=True))

    async def remove(self) -> None:
        """Destroys the sandbox, from every state; its history is kept."""
        await self._t.fetch("DELETE", self._base, repeatable=True)

    async def stop(self) -> types.Sandbox:
        """Ends the machine and keeps the files."""
        return await self._verb("stop")

    async def start(self) -> types.Sandbox:
        """Boots a stopped sandbox again, with its files."""
        return await self._verb("start")

    async def pause(self) -> types.Sandbox:
        """Holds the machine still, with its memory where the provider can."""
        return await self._verb("pause")

    async def resume(self) -> types.Sandbox:
        """Lets a paused machine go on."""
        return await self._verb("resume")

    async def _verb(self, verb: str) -> types.Sandbox:
        return cast(types.Sandbox, await self._t.fetch("POST", f"{self._base}/{verb}", repeatable=True))

    async def fork(self, count: int | None = None, **spec: Any) -> list[AsyncSandbox]:
        """Makes sandboxes that go on from where this one is, all or none. ``spec``: the keys of ``types.ForkSandbox``."""
        made = await self._t.fetch("POST", f"{self._base}/fork", body=given(count=count, **spec), **_keyed())
        return [AsyncSandbox(self._t, s["id"], s) for s in made["items"]]

    async def snapshot(self, name: str | None = None, *, disk_only: bool | None = None) -> types.Snapshot:
        """Saves the sandbox as it is; it goes on afterwards."""
        body = given(name=name, disk_only=disk_only)
        return cast(types.Snapshot, await self._t.fetch("POST", f"{self._base}/snapshots", body=body, **_keyed()))

    async def run_command(
        self, command: str | list[str], *, cwd: str | None = None, env: dict[str, str] | None = None, user: str | None = None,
        stdin: str | bytes | None = None, timeout: float | None = None, output_bytes_max: int | None = None,
        key: str | None = None, check: bool = False,
    ) -> Result:
        """Runs a command to its end.

        Args:
            command: a line for a shell, or a program with its arguments.
            stdin: all of its input.
            timeout: seconds, at most an hour; then it is ended with the reason ``timeout``. Default ten minutes.
            output_bytes_max: of each stream in the result; default one MiB, at most 16.
            key: a name for it: the same key never runs twice. By default a new one, so that a call which a broken
                connection or a restarted server interrupted is repeated and answers what the first one did.
            check: raise CommandError when the exit code is not 0.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        name = key or _core.new_key()
        body = given(**_core.program(command), cwd=cwd, env=env, user=user, key=name,
                     timeout_ms=_core.milliseconds(timeout), output_bytes_max=output_bytes_max,
                     stdin_base64=_core.base64.b64encode(data).decode() if data else None)
        try:
            result = Result.of(await self._t.fetch("POST", f"{self._base}/exec:run", body=body, repeatable=True, patient=True))
        except Exception:
            raise
        except BaseException:  # cancelled, or interrupted at a keyboard
            if key is None:  # no caller can ask for it again
                await self.process(name).kill()
            raise
        if check and result.exit_code != 0:
            raise errors.CommandError(result)
        return result

    async def start_command(
        self, command: str | list[str], *, cwd: str | None = None, env: dict[str, str] | None = None, user: str | None = None,
        stdin: bool = False, timeout: float | None = None, background: bool = False, key: str | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> AsyncProcess:
        """Starts a command and returns at once; iterate over the process for its output.

        Args:
            stdin: keep its input open, for ``write`` and ``close_stdin``.
            timeout: seconds after which it is ended; default none.
            background: it does not wait for a reader: of a long output that is not read the middle is dropped.
            terminal: columns and rows: it runs in a terminal.
        """
        key = key or _core.new_key()
        size = given(cols=terminal[0], rows=terminal[1]) if terminal else None
        body = given(**_core.program(command), cwd=cwd, env=env, user=user, key=key, stdin=stdin, wait=not background,
                     background=background, timeout_ms=_core.milliseconds(timeout), terminal=size)
        p = await self._t.fetch("POST", f"{self._base}/processes", body=body, repeatable=True, patient=True)
        return AsyncProcess(self._t, self._base, key, p)

    def process(self, key: str) -> AsyncProcess:
        """A handle on a command by its key; the server is not asked."""
        return AsyncProcess(self._t, self._base, key)

    async def processes(self) -> AsyncIterator[types.Process]:
        """Goes through the commands, oldest first."""
        async for item in _pages(self._t, f"{self._base}/processes", {}):
            yield cast(types.Process, item)

    async def ports(self) -> list[types.Port]:
        """TCP ports on which something in the sandbox listens."""
        return cast("list[types.Port]", (await self._t.fetch("GET", f"{self._base}/ports"))["items"])

    async def undo(self, **what: Any) -> types.Applied:
        """Takes the last change back, or all of a step, run, turn or call: see ``AsyncHistory.undo``."""
        return await self.history.undo(**what)


class AsyncProcess:
    """A command in a sandbox. It goes on when this client goes."""

    def __init__(self, transport: AsyncTransport, base: str, key: str, info: types.Process | None = None) -> None:
        self._t = transport
        self._base = f"{base}/processes/{segment(key)}"
        self.key = key
        self.info = info  #: as the server told last
        self._stdin = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"

    async def get(self) -> types.Process:
        """The command as it is now."""
        self.info = cast(types.Process, await self._t.fetch("GET", self._base))
        return self.info

    async def output(self, stdout_from: int = 0, stderr_from: int = 0, *, follow: bool = True) -> AsyncIterator[Output]:
        """What the command writes, from byte offsets on (-1: the present end), until it has ended.

        A broken connection or a restarted server is bridged: no byte is left out, none comes twice. With
        ``follow=False``: what there is now.
        """
        place = _core.Place(stdout_from, stderr_from)
        query = {"stdout_from": stdout_from, "stderr_from": stderr_from, "follow": "true" if follow else "false"}
        async for event in self._t.events(f"{self._base}/output", query, finite=not follow):
            for piece in place.take(event.name, json.loads(event.data)):
                yield piece
            if place.process is not None:
                self.info = place.process
                return

    def __aiter__(self) -> AsyncIterator[Output]:
        return self.output()

    async def wait(self, timeout: float | None = None) -> types.Process:
        """Waits for the end, or for some seconds: then ``state`` is still ``running``.

        Output is not read meanwhile: a command that was not started in the background stands still when it has
        written much. ConflictError: the machine was started anew, and how the command ended cannot be known.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 30.0 if deadline is None else min(30.0, deadline - time.monotonic())
            self.info = cast(types.Process, await self._t.fetch(
                "GET", f"{self._base}/wait", query={"wait_ms": max(0, round(left * 1000))}, repeatable=True, patient=True))
            _core.ended(self.info)
            if self.info["state"] != "running" or left < 30 and deadline is not None and time.monotonic() >= deadline:
                return self.info

    @property
    def exit_code(self) -> int | None:
        """As a shell reports it; None as long as this client was not told of its end."""
        status = (self.info or {}).get("exit")
        return status["code"] if status else None

    async def write(self, data: str | bytes) -> None:
        """Writes to the command's input. A repeated attempt never writes a byte twice. Not for concurrent use."""
        await self._input(data.encode() if isinstance(data, str) else data, False)

    async def close_stdin(self) -> None:
        """Ends the command's input."""
        await self._input(b"", True)

    async def _input(self, data: bytes, eof: bool) -> None:
        end, begin = self._stdin + len(data), self._stdin
        while True:
            part = data[self._stdin - begin:][:_core.STDIN_BYTES_MAX]
            last = self._stdin + len(part) == end
            ack = await self._t.fetch("POST", f"{self._base}/stdin", content=part, repeatable=True, patient=True,
                                      query={"offset": self._stdin, "eof": eof and last},
                                      headers={"Content-Type": "application/octet-stream"})
            self._stdin = max(self._stdin, ack["acked"])
            if self._stdin >= end and (not eof or ack["closed"] or last):
                return
            if ack["closed"]:
                raise errors.ConflictError(f"the command {self.key} takes no more input")

    async def signal(self, number: int = signals.SIGTERM) -> None:
        """Signals the command's process group."""
        await self._t.fetch("POST", f"{self._base}/signal", body={"signal": int(number)})

    async def kill(self) -> None:
        """Ends the command at once."""
        await self.signal(signals.SIGKILL)

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the size of the command's terminal."""
        await self._t.fetch("POST", f"{self._base}/resize", body={"cols": cols, "rows": rows}, repeatable=True)

    async def forget(self) -> None:
        """Drops an ended command, its output and its key."""
        await self._t.fetch("DELETE", self._base, repeatable=True)


class AsyncFiles:
    """The files of a sandbox. Paths are absolute or relative to the working directory; they may hold bytes that are
    not UTF-8, as ``os.fsdecode`` makes text of them."""

    def __init__(self, transport: AsyncTransport, base: str, user: str | None = None) -> None:
        self._t, self._sandbox, self._base, self._user = transport, base, base + "/files", user

    def as_user(self, user: str) -> AsyncFiles:
        """The same files with another user's rights; ``root`` needs a sandbox that grants it."""
        return AsyncFiles(self._t, self._sandbox, user)

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or ``length`` bytes of it from an offset on."""
        parts = []
        async for part in self.stream(path, offset, length):
            parts.append(part)
        return b"".join(parts)

    async def read_text(self, path: str) -> str:
        """The content of a file that is UTF-8."""
        return (await self.read(path)).decode()

    async def stream(self, path: str, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The content of a file in pieces, as it comes. One that breaks off raises UnavailableError."""
        if length is not None and length <= 0:
            return
        headers = {}
        if offset or length is not None:
            headers["Range"] = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
        response = await self._t.stream(self._base, query={"path": path, "user": self._user}, headers=headers)
        try:
            async for part in response.aiter_bytes(_core.CHUNK_BYTES):
                yield part
        except httpx.TransportError as e:
            raise _broken(e) from e
        finally:
            await response.aclose()

    async def write(self, path: str, content: str | bytes | AsyncIterable[bytes], *, mode: int | None = None,
                    make_parents: bool = False, append: bool = False, offset: int | None = None,
                    if_absent: bool = False, if_sha256: str | None = None) -> types.File:
        """Writes a file; its readers see the old content or the new one, never a mix.

        Args:
            content: text, bytes, or pieces of a large file as they come, which are sent once.
            offset: write in place there; ``append``: at the end. Neither is atomic.
            if_absent: only where nothing is (ExistsError or ConflictError).
            if_sha256: only over exactly this content (ConflictError).
        """
        query = {"path": path, "user": self._user, "mode": mode, "make_parents": make_parents, "append": append, "offset": offset}
        headers = {"Content-Type": "application/octet-stream"}
        if if_absent:
            headers["If-None-Match"] = "*"
        if if_sha256:
            headers["If-Match"] = f'"{if_sha256}"'
        data = content.encode() if isinstance(content, str) else content
        repeatable = isinstance(data, bytes) and not (append or if_absent or if_sha256)
        return cast(types.File, await self._t.fetch("PUT", self._base, query=query, headers=headers, content=data, repeatable=repeatable))

    async def stat(self, path: str, *, follow: bool = False, hash: bool = False) -> types.File:
        """What is known of a path; with ``hash`` the SHA-256 of a file too. A symbolic link itself, unless ``follow``."""
        query = {"path": path, "user": self._user, "follow": follow or hash, "hash": hash}
        return cast(types.File, await self._t.fetch("GET", f"{self._base}/stat", query=query))

    async def exists(self, path: str) -> bool:
        """Whether there is something."""
        try:
            await self.stat(path)
        except errors.NotFoundError:
            return False
        return True

    async def list(self, path: str = ".", *, depth: int | None = None) -> AsyncIterator[types.File]:
        """Goes through a directory, and its subdirectories down to ``depth``."""
        async for item in _pages(self._t, f"{self._base}/list", {"path": path, "depth": depth, "user": self._user}):
            yield cast(types.File, item)

    async def glob(self, pattern: str, base: str | None = None, *, limit: int | None = None) -> types.GlobResult:
        """The paths beneath a directory that match ``**``, ``*``, ``?``, ``[a-z]`` and ``{a,b}``."""
        query = {"base": base, "pattern": pattern, "limit": limit, "user": self._user}
        return cast(types.GlobResult, await self._t.fetch("GET", f"{self._base}/glob", query=query))

    async def grep(self, pattern: str, base: str | None = None, *, literal: bool = False, ignore_case: bool = False,
                   include: str | None = None, context: int | None = None, limit: int | None = None,
                   file_bytes_max: int | None = None) -> types.GrepResult:
        """The lines that match a regular expression (RE2), or with ``literal`` that have a text in them."""
        query = {"base": base, "pattern": pattern, "literal": literal, "ignore_case": ignore_case, "include": include,
                 "context": context, "limit": limit, "file_bytes_max": file_bytes_max, "user": self._user}
        return cast(types.GrepResult, await self._t.fetch("GET", f"{self._base}/grep", query=query))

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> int:
        """Removes a file or an empty directory, or with ``recursive`` whatever it is; answers how many entries."""
        query = {"path": path, "user": self._user, "recursive": recursive, "missing_ok": missing_ok}
        return cast(int, (await self._t.fetch("DELETE", self._base, query=query, repeatable=missing_ok))["removed"])

    async def make_dir(self, path: str, *, parents: bool = False, mode: int | None = None) -> types.File:
        """Makes a directory; with ``parents`` those above too, and one that is there is accepted."""
        return await self._post("mkdir", given(**_core.named("path", path), parents=parents, mode=mode, user=self._user))

    async def move(self, source: str, destination: str, *, overwrite: bool = False) -> types.File:
        """Renames a file or directory."""
        return await self._post("move", given(**_core.named("source", source), **_core.named("destination", destination),
                                              overwrite=overwrite, user=self._user))

    async def copy(self, source: str, destination: str, *, overwrite: bool = False) -> types.File:
        """Copies a file or directory inside the sandbox."""
        return await self._post("copy", given(**_core.named("source", source), **_core.named("destination", destination),
                                              overwrite=overwrite, user=self._user))

    async def chmod(self, path: str, mode: int, *, recursive: bool = False) -> types.File:
        """Sets permission bits."""
        return await self._post("chmod", given(**_core.named("path", path), mode=mode, recursive=recursive, user=self._user))

    async def symlink(self, target: str, path: str) -> types.File:
        """Makes a symbolic link at ``path``."""
        return await self._post("symlink", given(**_core.named("target", target), **_core.named("path", path), user=self._user))

    async def _post(self, verb: str, body: Any) -> types.File:
        return cast(types.File, await self._t.fetch("POST", f"{self._base}/{verb}", body=body))

    async def upload_tree(self, path: str, tar: bytes | AsyncIterable[bytes]) -> types.TreeWritten:
        """Unpacks a tar beneath a directory."""
        return cast(types.TreeWritten, await self._t.fetch("PUT", f"{self._sandbox}/tree", query={"path": path, "user": self._user},
                                                           content=tar, headers={"Content-Type": "application/x-tar"}))

    async def download_tree(self, path: str) -> AsyncIterator[bytes]:
        """A directory as a tar. Its content is the sandbox's: unpack it with ``tarfile``'s filter ``data``."""
        response = await self._t.stream(f"{self._sandbox}/tree", query={"path": path, "user": self._user})
        try:
            async for part in response.aiter_bytes(_core.CHUNK_BYTES):
                yield part
        except httpx.TransportError as e:
            raise _broken(e) from e
        finally:
            await response.aclose()


class AsyncHistory:
    """The revisions of a sandbox's workspace, and the ways back. Paths are relative to the workspace."""

    def __init__(self, transport: AsyncTransport, base: str) -> None:
        self._t, self._base = transport, base

    async def state(self) -> types.RevisionPage:
        """The newest revisions, where undo and redo would go, and what is in no revision yet."""
        return cast(types.RevisionPage, await self._t.fetch("GET", self._base))

    async def revisions(self, *, thread: str | None = None, run: str | None = None) -> AsyncIterator[types.Revision]:
        """Goes through the revisions, newest first."""
        async for item in _pages(self._t, self._base, {"thread": thread, "run": run}):
            yield cast(types.Revision, item)

    async def save(self, label: str | None = None) -> types.Revision:
        """Makes a revision of what is on disk now; the last one if nothing changed."""
        return cast(types.Revision, await self._t.fetch("POST", self._base, body=given(label=label), repeatable=True))

    async def get(self, n: int) -> types.RevisionChanges:
        """A revision and what it changed."""
        return cast(types.RevisionChanges, await self._t.fetch("GET", f"{self._base}/{n}"))

    async def read(self, n: int, path: str) -> bytes:
        """A file as it was in a revision."""
        return await self._t.read("GET", f"{self._base}/{n}/file", query={"path": path})

    async def diff(self, from_: int, to: int = 0, *, path: str | None = None, hunks: bool = True, context: int | None = None) -> types.Diff:
        """What differs between two revisions; from 0 is the empty tree, to 0 the files as they are now."""
        query = {"from": from_, "to": to, "path": path, "hunks": hunks, "context": context}
        return cast(types.Diff, await self._t.fetch("GET", f"{self._base}/diff", query=query))

    async def of_path(self, path: str) -> types.PathRevisions:
        """The revisions that changed a path, newest first."""
        return cast(types.PathRevisions, await self._t.fetch("GET", f"{self._base}/path", query={"path": path}))

    async def plan(self, do: str, **what: Any) -> types.ChangePlan:
        """What ``undo``, ``redo``, ``restore`` or ``revert`` would do; nothing is done. ``what``: the keys of ``types.PlanChange``."""
        return cast(types.ChangePlan, await self._t.fetch("POST", f"{self._base}/plan", body=given(do=do, **what), repeatable=True))

    async def apply(self, plan: str) -> types.Applied:
        """Does what was planned, as it was shown, or nothing (ConflictError: the files changed since)."""
        return cast(types.Applied, await self._t.fetch("POST", f"{self._base}/apply", body={"plan": plan}, repeatable=True))

    async def undo(self, **what: Any) -> types.Applied:
        """Takes the last change back, or with ``scope`` all of the last ``step``, ``run``, ``turn`` or ``call``."""
        return await self.apply((await self.plan("undo", **what))["id"])

    async def redo(self) -> types.Applied:
        """Takes the last undo back."""
        return await self.apply((await self.plan("redo"))["id"])

    async def restore(self, n: int, path: str | None = None) -> types.Applied:
        """Makes the files, or those beneath a path, what they were at a revision."""
        return await self.apply((await self.plan("restore", n=n, path=path))["id"])

    async def revert(self, n: int, choices: list[types.RevertChoice] | None = None) -> types.Applied:
        """Takes back what one revision changed and keeps what came after it. ConflictError: it must be chosen by path."""
        return await self.apply((await self.plan("revert", n=n, choices=choices))["id"])


FINAL = ("succeeded", "failed", "cancelled", "timed_out")


class AsyncRun:
    """A run of an agent. It goes on when this client goes."""

    def __init__(self, transport: AsyncTransport, id: str, info: types.Run | None = None) -> None:
        self._t = transport
        self.id = id
        self.info = info  #: as the server answered when it was started by this client
        self._base = f"/v1/runs/{segment(id)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def get(self) -> types.Run:
        """The run as it is now."""
        return cast(types.Run, await self._t.fetch("GET", self._base))

    async def events(self, from_: int | None = None, *, follow: bool = True) -> AsyncIterator[types.RunEvent]:
        """The events of the run from a number on, and as they come, until it is over; none left out, none twice.

        Skip kinds that you do not know. With ``follow=False``: those that there are now.
        """
        async for name, data in self._news({"from": from_, "follow": "true" if follow else "false"}, finite=not follow):
            if name == "event":
                yield cast(types.RunEvent, data)

    async def live(self, from_: int | None = None) -> AsyncIterator[tuple[str, Any]]:
        """Events with live news between them, as pairs: ``event`` (types.RunEvent), ``live`` (types.Live: parts of
        answers, output of running calls), ``gap`` (types.LiveGap), at last ``end`` (types.StreamEnd)."""
        async for item in self._news({"from": from_, "live": True}, finite=False):
            yield item

    async def _news(self, query: dict[str, Any], finite: bool) -> AsyncIterator[tuple[str, Any]]:
        async for event in self._t.events(f"{self._base}/events", query, finite=finite):
            if event.name == "heartbeat":
                continue
            yield event.name, json.loads(event.data)
            if event.name == "end":
                return

    async def wait(self) -> types.Run:
        """The run when it is over, however long it takes. One that waits for a person goes on waiting."""
        run = await self.get()
        if run["state"] in FINAL:
            return run
        async for _ in self.events(run["last_seq"]):
            pass
        for attempt in range(1, 11):  # its record may lag behind its log
            run = await self.get()
            if run["state"] in FINAL:
                return run
            await asyncio.sleep(_core.backoff(attempt))
        raise errors.UnavailableError(f"run {self.id} has ended, and its record does not say how")

    async def send(self, text: str) -> types.Sent:
        """Sends a message. A run that is over is followed by a new one on its thread, which the answer names."""
        return cast(types.Sent, await self._t.fetch("POST", f"{self._base}/send", body={"text": text}, **_keyed()))

    async def approvals(self) -> list[types.Approval]:
        """The calls of the run, and of its sub-agents, that wait for a person."""
        return cast("list[types.Approval]", (await self._t.fetch("GET", f"{self._base}/approvals"))["items"])

    async def decide(self, call: str, decision: str, **more: Any) -> types.Decided:
        """Answers one approval by ``approve``, ``edit`` (args), ``reject`` or ``respond`` (text). ConflictError: another was quicker."""
        body = {"decisions": [given(call=call, decision=decision, **more)]}
        decided = (await self._t.fetch("POST", f"{self._base}/decisions", body=body))["items"][0]
        if not decided["ok"] and decided.get("problem"):
            raise errors.of_problem(decided["problem"])
        return cast(types.Decided, decided)

    async def cancel(self, reason: str | None = None) -> types.Run:
        """Ends the run, and what it started."""
        return cast(types.Run, await self._t.fetch("POST", f"{self._base}/cancel", body=given(reason=reason), repeatable=True))

    async def resume(self, **budget: Any) -> types.Run:
        """Goes on with a run that a budget or a failure ended. ``budget``: the keys of ``types.ResumeRun``."""
        return cast(types.Run, await self._t.fetch("POST", f"{self._base}/resume", body=budget))

    async def transcript(self, last: int | None = None) -> types.Transcript:
        """The story of the last steps."""
        return cast(types.Transcript, await self._t.fetch("GET", f"{self._base}/transcript", query={"last": last}))

    async def todos(self) -> list[types.Todo]:
        """The agent's plan."""
        return cast("list[types.Todo]", (await self._t.fetch("GET", f"{self._base}/todos"))["items"])

    async def output(self, call: str, offset: int | None = None) -> bytes:
        """The whole output of a tool call."""
        return await self._t.read("GET", f"{self._base}/calls/{segment(call)}/output", query={"offset": offset})
