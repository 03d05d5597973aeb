"""A sandbox of skete as the backend of LangChain Deep Agents (the extra ``deepagents``).

    from deepagents import create_deep_agent
    from skete.deepagents import SketeSandbox

    with SketeSandbox.create() as backend:
        agent = create_deep_agent(model=…, backend=backend)

Files go by the API of files, never through a shell; all that the agent changes in the workspace is in the sandbox's
history, and ``backend.sandbox.undo()`` takes it back.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from deepagents.backends.protocol import (
    ASYNC_GLOB_TIMEOUT, ASYNC_GREP_TIMEOUT, DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileUploadResponse,
    GlobResult, GrepResult, LsResult, ReadResult, SandboxBackendProtocol, WriteResult,
)

from . import _deepagents_core as core
from ._async import AsyncSandbox, AsyncTransport
from ._deepagents_async import AsyncBackend
from ._deepagents_sync import Backend
from ._sync import Sandbox, Skete

__all__ = ["SketeSandbox"]


class SketeSandbox(SandboxBackendProtocol):
    """Files and commands of one sandbox, for an agent.

    Args:
        sandbox: of a client (``Skete().create()``), which stays the caller's to close; or an id or name.
        url, key: of the server, for an id or name; default as ``Skete`` has them.
        timeout: seconds that a command may take when the agent says nothing; at most an hour.

    Safe for concurrent use, from threads and from any number of event loops.
    """

    def __init__(self, sandbox: Sandbox | str, *, url: str | None = None, key: str | None = None,
                 timeout: float = core.TIMEOUT_DEFAULT) -> None:
        self._client: Skete | None = None
        self._made = False
        if isinstance(sandbox, str):
            self._client = Skete(url, key)
            sandbox = self._client.sandbox(sandbox)
        self.sandbox = sandbox  #: for its history, undo and all else
        self._timeout = min(timeout, core.TIMEOUT_MAX)
        self._backend = Backend(sandbox, self._timeout)
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncTransport, AsyncBackend]] = weakref.WeakKeyDictionary()

    @classmethod
    def create(cls, template: str | None = None, *, url: str | None = None, key: str | None = None,
               timeout: float = core.TIMEOUT_DEFAULT, **spec: Any) -> SketeSandbox:
        """Makes a sandbox of its own, which ``close`` removes. ``spec``: as ``Skete.create`` has it."""
        client = Skete(url, key)
        try:
            backend = cls(client.create(template, **spec), timeout=timeout)
        except BaseException:
            client.close()
            raise
        backend._client, backend._made = client, True
        return backend

    def __enter__(self) -> SketeSandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the connections, and removes the sandbox if ``create`` made it; its history is kept."""
        if self._made:
            self._made = False
            self.sandbox.remove()
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """``close``, and the connections of this event loop too."""
        with self._lock:
            here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here[0].aclose()
        await asyncio.to_thread(self.close)

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox.id

    def _here(self) -> AsyncBackend:
        """The half for this event loop: connections belong to the loop that made them."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._loops:
                transport = AsyncTransport(self.sandbox._t.config)
                self._loops[loop] = transport, AsyncBackend(AsyncSandbox(transport, self.sandbox.id), self._timeout)
            return self._loops[loop][1]

    def ls(self, path: str) -> LsResult:
        """What is in a directory."""
        return self._backend.ls(path)

    async def als(self, path: str) -> LsResult:
        """``ls`` for asyncio."""
        return await self._here().ls(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Lines of a text, at most 500 KiB, or a file that is none in base64. A large text is read as far as it is shown."""
        return self._backend.read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """``read`` for asyncio."""
        return await self._here().read(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Writes a file, and makes the directories above it."""
        return self._backend.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """``write`` for asyncio."""
        return await self._here().write(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a text. Edits at the same time are all done: none writes over what it has not read."""
        return self._backend.edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """``edit`` for asyncio."""
        return await self._here().edit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        """Removes a file, or a directory with all that is in it."""
        return self._backend.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """``delete`` for asyncio."""
        return await self._here().delete(file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Files by name, beneath a directory or the working directory; at most 10,000."""
        return self._backend.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """``glob`` for asyncio."""
        try:
            return await asyncio.wait_for(self._here().glob(pattern, path), ASYNC_GLOB_TIMEOUT)
        except asyncio.TimeoutError:
            return GlobResult(error=f"Error: glob timed out after {ASYNC_GLOB_TIMEOUT}s. Try a more specific pattern or a narrower path.")

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        """Lines that have a text in them. Binary files, those above 16 MiB and git's own are left out; of a line the
        first 4,096 bytes are shown."""
        return self._backend.grep(pattern, path, glob, max_count=max_count)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        """``grep`` for asyncio."""
        try:
            return await asyncio.wait_for(self._here().grep(pattern, path, glob, max_count=max_count), ASYNC_GREP_TIMEOUT)
        except asyncio.TimeoutError:
            return GrepResult(error=f"Error: grep timed out after {ASYNC_GREP_TIMEOUT}s. Try a more specific pattern or a narrower path.")

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, each for itself."""
        return self._backend.upload_files(files)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """``upload_files`` for asyncio."""
        return await self._here().upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads whole files, each for itself."""
        return self._backend.download_files(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """``download_files`` for asyncio."""
        return await self._here().download_files(paths)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line of a shell to its end; 0 seconds are an hour. It survives a server that is restarted."""
        return self._backend.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """``execute`` for asyncio; a call that is cancelled ends the command."""
        return await self._here().execute(command, timeout=timeout)
