"""What the synchronous and the asynchronous client share, and no input or output is in."""

from __future__ import annotations

import base64
import os
import random
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from .errors import ConflictError, InternalError, InvalidError

DEFAULT_URL = "http://127.0.0.1:7733"
ATTEMPTS_MAX = 4  # of a call that may be repeated
STDIN_BYTES_MAX = 1 << 20  # of one call
SILENCE_MAX = 50.0  # of a stream of events, which shows every ten seconds that it lives
CHUNK_BYTES = 256 << 10  # of a file on its way
EVENT_BYTES_MAX = 4 << 20


def home() -> Path:
    """The data directory of this machine's server: $SKETE_HOME, or where it is by default."""
    if given := os.environ.get("SKETE_HOME"):
        return Path(given)
    if os.getuid() == 0:
        return Path("/var/lib/skete")
    return Path.home() / ".local" / "share" / "skete"


@dataclass
class Config:
    """Where the server is, and who is calling."""

    base: str = ""
    socket: str = ""  # path of a unix socket; "" = none
    headers: dict[str, str] = field(default_factory=dict)
    reconnect: float = 60.0  # how long a broken stream tries to come back

    @classmethod
    def of(cls, url: str | None, key: str | None, reconnect: float) -> Config:
        """The configuration that arguments and, where they are missing, the environment mean."""
        if url is None:
            url = os.environ.get("SKETE_URL") or f"unix://{home() / 'skete.sock'}"
        if key is None:
            key = os.environ.get("SKETE_KEY", "")
        c = cls(reconnect=reconnect, headers={"User-Agent": "skete-python"})
        if key:
            c.headers["Authorization"] = f"Bearer {key}"
        if url.startswith("unix://"):
            c.base, c.socket = "http://skete", url.removeprefix("unix://")
            if not c.socket.startswith("/"):
                raise InvalidError(f"the server's URL {url!r} names no absolute path", hint="write unix:///path/of/skete.sock")
            return c
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidError(f"{url!r} is not the URL of a server",
                               hint="use http://host:port, https://host or unix:///path/of/skete.sock")
        c.base = url.rstrip("/")
        return c

    def reach_socket(self) -> tuple[str, int]:
        """A path of at most 107 bytes, as the kernel wants it, for the socket, and the
        descriptor that it needs; -1 = none."""
        if len(os.fsencode(self.socket)) <= 107:
            return self.socket, -1
        directory, name = os.path.split(self.socket)
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{fd}/{name}", fd


def backoff(attempt: int) -> float:
    """Seconds before the next attempt; jitter keeps many clients of one restarted server apart."""
    longest = min(0.05 * 2 ** min(attempt - 1, 10), 2.0)
    return longest * random.uniform(0.5, 1)


def new_key() -> str:
    """A name for a command or a request that is never used again."""
    return "py-" + secrets.token_hex(12)


def query_of(values: dict[str, Any]) -> str:
    """A query without what is None or False. Text may hold bytes that are not UTF-8, as os.fsdecode makes it."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        if isinstance(value, dict):
            pairs += [(name, f"{k}={v}") for k, v in value.items()]
        else:
            pairs.append((name, "true" if value is True else str(value)))
    return urlencode(pairs, quote_via=quote, errors="surrogateescape", safe="/")


def segment(text: str) -> str:
    """Text as one segment of a path."""
    return quote(text, safe="", errors="surrogateescape")


def given(**values: Any) -> dict[str, Any]:
    """What is not None, as the body of a request."""
    return {name: value for name, value in values.items() if value is not None}


def named(name: str, path: str) -> dict[str, str]:
    """A path in a request's body; one that is not UTF-8 goes as bytes too, and those count."""
    try:
        path.encode()
    except UnicodeEncodeError:
        exact = os.fsencode(path)
        return {name: exact.decode(errors="replace"), f"{name}_bytes": base64.b64encode(exact).decode()}
    return {name: path}


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as requests carry them."""
    return None if seconds is None else max(1, round(seconds * 1000)) if seconds > 0 else 0


def program(command: str | list[str] | tuple[str, ...]) -> dict[str, Any]:
    """A line for a shell, or a program with arguments."""
    return {"command": command} if isinstance(command, str) else {"argv": list(command)}


class ServerEvent(NamedTuple):
    """One server-sent event."""

    id: str
    name: str
    data: bytes


class EventReader:
    """Makes events of the bytes of a stream. An event that the end of the stream cut is none."""

    def __init__(self) -> None:
        self._rest = bytearray()  # of an event that has not ended yet
        self._seen = 0  # bytes of it in which no end is
        self._held = b""  # half of a line's end, perhaps
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in the chunk."""
        chunk, self._held = self._held + chunk, b""
        if b"\r" in chunk:
            self._held = chunk[-1:] if chunk.endswith(b"\r") else b""
            chunk = chunk[: len(chunk) - len(self._held)].replace(b"\r\n", b"\n")
        self._rest += chunk
        events, begin = [], 0
        while (end := self._rest.find(b"\n\n", max(begin, self._seen))) >= 0:
            if event := self._event(bytes(self._rest[begin:end])):
                events.append(event)
            begin = end + 2
        del self._rest[:begin]
        self._seen = max(0, len(self._rest) - 1)
        if len(self._rest) > EVENT_BYTES_MAX:
            raise InternalError(f"an event of the server is larger than {EVENT_BYTES_MAX} bytes")
        return events

    def _event(self, block: bytes) -> ServerEvent | None:
        name, data = "", []
        for line in block.split(b"\n"):
            key, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if key == b"data":
                data.append(value)
            elif key == b"event":
                name = value.decode(errors="replace")
            elif key == b"id":
                self._id = value.decode(errors="replace")
        return ServerEvent(self._id, name, b"\n".join(data)) if data else None


@dataclass(frozen=True)
class Output:
    """A piece of what a command wrote.

    ``lost`` bytes at ``offset`` were dropped where a command did not wait for its reader; ``data`` is empty then.
    """

    stream: str
    offset: int
    data: bytes
    lost: int = 0

    @property
    def text(self) -> str:
        """The bytes as text; a character may be cut between two pieces."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Result:
    """What came of a command that was run to its end."""

    key: str
    exit_code: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    reason: str = ""  #: timeout, out of memory, killed; or why it was not started
    signal: int = 0
    stdout_truncated: bool = False  #: it wrote more; ``Sandbox.process(key).output(...)`` has it
    stderr_truncated: bool = False
    not_started: bool = False  #: its program is not there (127), or cannot be run (126)
    existed: bool = False  #: the key was known, and nothing was started

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.stderr_bytes.decode(errors="replace")

    @classmethod
    def of(cls, r: Any) -> Result:
        """The result that a CommandResult of the server means."""
        return cls(
            key=r["key"], exit_code=r["exit_code"], reason=r.get("reason", ""), signal=r.get("signal", 0),
            stdout_bytes=_bytes(r, "stdout"), stderr_bytes=_bytes(r, "stderr"),
            stdout_truncated=r.get("stdout_truncated", False), stderr_truncated=r.get("stderr_truncated", False),
            not_started=r.get("not_started", False), existed=r.get("existed", False),
        )


def _bytes(r: Any, stream: str) -> bytes:
    text: str = r.get(stream, "")
    return base64.b64decode(text) if r.get(f"{stream}_encoding") == "base64" else text.encode()


class Place:
    """How far the output of a command was read."""

    def __init__(self, stdout: int, stderr: int) -> None:
        self._next = {"stdout": stdout, "stderr": stderr}
        self.process: Any = None  # at its end

    def take(self, name: str, event: Any) -> list[Output]:
        """What an event brings that was not seen before."""
        if name in ("started", "exited"):
            process = event["process"]
            for stream, at in self._next.items():
                if at < 0:
                    self._next[stream] = process[stream]["size"]
            if name == "exited":
                self.process = process
            return []
        if name == "gap":
            return self._gap(event["stream"], event.get("from", 0), event["to"])
        if name not in self._next:
            return []  # a later version may send more
        offset, data = event.get("offset", 0), base64.b64decode(event.get("data", ""))
        pieces = self._gap(name, self._next[name], offset) if 0 <= self._next[name] < offset else []
        data = data[max(0, self._next[name] - offset):]
        if data:
            pieces.append(Output(name, max(offset, self._next[name]), data))
            self._next[name] = pieces[-1].offset + len(data)
        return pieces

    def _gap(self, stream: str, start: int, end: int) -> list[Output]:
        start = max(start, self._next[stream])
        if end <= start:
            return []
        self._next[stream] = end
        return [Output(stream, start, b"", end - start)]


def ended(process: Any) -> None:
    """Refuses a command of which the end cannot be known."""
    if process["state"] == "lost":
        raise ConflictError(
            f"the command {process['key']} is lost: its sandbox was started anew, and it was not run again",
            hint="how it ended cannot be known; look at its effects, and take a new key to run it again")
