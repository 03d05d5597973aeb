"""The synchronous half of the backend of Deep Agents. Made by generate.py: change the asynchronous one."""

from __future__ import annotations

import hashlib
from contextlib import closing

from deepagents.backends.protocol import (
    DeleteResult, EditResult, ExecuteResponse, FileData, FileDownloadResponse, FileUploadResponse, GlobResult, GrepResult,
    LsResult, ReadResult, WriteResult,
)
from deepagents.backends.sandbox import MAX_BINARY_BYTES
from deepagents.backends.utils import EMPTY_OLD_STRING_ERROR, _get_backend_read_file_type, normalize_read_bounds

from . import _deepagents_core as core
from . import errors
from ._sync import Sandbox


class Backend:
    """The methods of SandboxBackendProtocol over the API of one sandbox."""

    def __init__(self, sandbox: Sandbox, timeout: float) -> None:
        self._sandbox, self._files, self._timeout = sandbox, sandbox.files, timeout
        self._workdir = ""  # once it was asked for

    def ls(self, path: str) -> LsResult:
        if not core.valid(path):
            return LsResult(error=f"Path '{path}': invalid_path")
        try:
            return LsResult(entries=[core.info_of(f) for f in self._files.list(path)])
        except errors.SketeError as e:
            code = core.code_of(e)
            return LsResult(error=f"Path '{path}': " + {"file_not_found": "path_not_found", "invalid_path": "not_a_directory"}.get(code, code))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        if not core.valid(file_path):
            return ReadResult(error=f"File '{file_path}': invalid_path")
        try:
            return self._read(file_path, *normalize_read_bounds(offset, limit))
        except errors.SketeError as e:
            return ReadResult(error=f"File '{file_path}': {core.code_of(e)}")

    def _read(self, path: str, offset: int, limit: int) -> ReadResult:
        known = self._files.stat(path, follow=True)
        if known["type"] != "file":
            return ReadResult(error=f"File '{path}': not_a_file")
        if known["size"] == 0:
            return core.empty()
        text = _get_backend_read_file_type(path) == "text"
        if not text or not core.is_text(self._files.read(path, 0, core.PREFIX_BYTES)):
            return core.binary_of(path, self._files.read(path, 0, MAX_BINARY_BYTES + 1))
        if limit == 0:
            return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
        window, whole = core.Window(offset, limit), True
        with closing(self._files.stream(path)) as parts:  # type: ignore[type-var]
            for part in parts:
                window.feed(part)
                if window.full and known["size"] > core.LINE_COUNT_BYTES_MAX:
                    whole = False
                    break
        if whole:
            window.feed(b"", True)
        return window.result(path, known["modified_at"], whole)

    def write(self, file_path: str, content: str) -> WriteResult:
        error = self._put(file_path, content)
        return WriteResult(error=f"Failed to write file '{file_path}': {error}") if error else WriteResult(path=file_path)

    def _put(self, path: str, content: str | bytes) -> str | None:
        """Writes a whole file, and returns what is wrong."""
        if not core.valid(path):
            return "invalid_path"
        try:
            self._files.write(path, content, make_parents=True)
        except UnicodeEncodeError as e:
            return f"the content is not valid text: {e.reason}"
        except errors.SketeError as e:
            return core.code_of(e)
        return None

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING_ERROR)
        if not core.valid(file_path):
            return EditResult(error=core.edit_error("invalid_path", file_path, old_string))
        for _ in range(core.EDIT_ATTEMPTS):
            try:
                done = self._edit(file_path, old_string, new_string, replace_all)
            except errors.ConflictError:
                continue  # another one changed it meanwhile: nothing was written
            except UnicodeEncodeError as e:
                done = f"the new text is not valid: {e.reason}"
            except errors.SketeError as e:
                done = core.code_of(e)
            if isinstance(done, int):
                return EditResult(path=file_path, occurrences=done)
            return EditResult(error=core.edit_error(done, file_path, old_string))
        return EditResult(error=core.edit_error("it is being changed by others all the time", file_path, old_string))

    def _edit(self, path: str, old: str, new: str, replace_all: bool) -> int | str:
        """Replaces and returns how often, or a code. ConflictError: the file was changed meanwhile."""
        known = self._files.stat(path, follow=True)
        if known["type"] != "file":
            return "is_directory"
        if known["size"] > core.EDIT_BYTES_MAX:
            return f"it has more than {core.EDIT_BYTES_MAX} bytes"
        raw = self._files.read(path)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return "not_a_text_file"
        done = core.replaced(text, old, new, replace_all)
        if isinstance(done, str):
            return done
        self._files.write(path, done[0], if_sha256=hashlib.sha256(raw).hexdigest())
        return done[1]

    def delete(self, file_path: str) -> DeleteResult:
        if not core.valid(file_path):
            return DeleteResult(error=f"Error deleting file '{file_path}': invalid_path")
        try:
            self._files.remove(file_path, recursive=True)
        except errors.SketeError as e:
            code = core.code_of(e)
            return DeleteResult(error=f"Error: '{file_path}' not found" if code == "file_not_found"
                                else f"Error deleting file '{file_path}': {code}")
        return DeleteResult(path=file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        root = self._root(path)
        try:
            wanted = core.Pattern(pattern)
            found = self._files.glob(wanted.asked, root, limit=2 * core.GLOB_MAX)
        except ValueError as e:
            return GlobResult(error=str(e))
        except errors.SketeError as e:
            return GlobResult(error=f"Path '{root}': {core.reason_of(e)}")
        return core.globbed(found, wanted, root)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        root = self._root(path)
        limit = min(core.MATCHES_MAX, core.MATCHES_MAX if max_count is None else max(0, max_count) + 1000)
        try:
            wanted = core.Pattern(glob) if glob else None
            found = self._files.grep(pattern, root, literal=True, include=wanted and wanted.asked, limit=limit)
        except ValueError as e:
            return GrepResult(error=str(e))
        except errors.SketeError as e:
            return GrepResult(error=f"Path '{root}': {core.reason_of(e)}")
        return core.grepped(found, wanted, root, max_count)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._put(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not core.valid(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._files.read(path))
        except errors.SketeError as e:
            return FileDownloadResponse(path=path, error=core.code_of(e))

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else min(timeout or core.TIMEOUT_MAX, core.TIMEOUT_MAX)
        result = self._sandbox.run_command(command, timeout=seconds, output_bytes_max=core.OUTPUT_BYTES_MAX)
        return core.response_of(result, seconds)

    def _root(self, path: str | None) -> str:
        """Where a search begins: what it is asked for, or the working directory."""
        if path:
            return path if path.startswith("/") else "/" + path
        if not self._workdir:
            self._workdir = (self._sandbox.get())["workdir"]
        return self._workdir
