"""What the two halves of the backend of Deep Agents share: their formats, and no input or output."""

from __future__ import annotations

import base64
import codecs
import io
from collections.abc import Callable
from typing import Any

from deepagents.backends.protocol import ExecuteResponse, FileData, FileInfo, GlobResult, GrepResult, ReadResult
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG
from deepagents.backends.utils import EMPTY_CONTENT_WARNING, compile_grep_include_glob

from . import errors
from ._core import Result

LINE_COUNT_BYTES_MAX = 1 << 20  # of larger files only the lines that are shown are read
EDIT_BYTES_MAX = 64 << 20
EDIT_ATTEMPTS = 20  # when others change the file meanwhile
GLOB_MAX = 10_000
MATCHES_MAX = 100_000  # what the server finds at most
OUTPUT_BYTES_MAX = 10 << 20  # of each stream of a command
TIMEOUT_DEFAULT = 30 * 60
TIMEOUT_MAX = 60 * 60
PREFIX_BYTES = 8192  # that decide whether a file is text


# The codes of Deep Agents, by those of the server.
CODES = {
    "file_not_found": "file_not_found", "permission_denied": "permission_denied", "is_directory": "is_directory",
    "not_a_directory": "invalid_path", "not_a_file": "invalid_path", "invalid_path": "invalid_path",
}


def code_of(e: errors.SketeError) -> str:
    """The code of a refusal, or its words where there is none. What is no fault of a path is raised again."""
    if e.code in CODES:
        return CODES[e.code]
    if isinstance(e, (errors.InvalidError, errors.LimitError, errors.ExistsError, errors.ConflictError)):
        return str(e.args[0])
    raise e


def reason_of(e: errors.SketeError) -> str:
    """What a search is refused for."""
    return str(e.args[0]) if isinstance(e, errors.InvalidError) else code_of(e)


def valid(path: str) -> bool:
    """Whether it can be a path of this backend: they are absolute."""
    return path.startswith("/") and "\0" not in path


def info_of(f: Any) -> FileInfo:
    """A path as listings have it."""
    return FileInfo(path=f["path"], is_dir=f["type"] == "directory", size=f["size"], modified_at=f["modified_at"])


def binary_of(path: str, raw: bytes) -> ReadResult:
    """A file that is no text."""
    if len(raw) > MAX_BINARY_BYTES:
        return ReadResult(error=f"File '{path}': Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes")
    return ReadResult(file_data=FileData(content=base64.b64encode(raw).decode(), encoding="base64"))


def empty() -> ReadResult:
    """A file without content."""
    return ReadResult(file_data=FileData(content=EMPTY_CONTENT_WARNING, encoding="utf-8"))


def is_text(prefix: bytes) -> bool:
    """Whether the beginning of a file is UTF-8; the cut may go through a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(prefix)
    except UnicodeDecodeError:
        return False
    return True


class Window:
    """Some lines of a file, of which it keeps no others."""

    def __init__(self, offset: int, limit: int) -> None:
        self._offset, self._end = offset, offset + limit
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._kept: list[str] = []
        self._line: list[str] = []  # pieces of the line that has not ended, if it is wanted
        self._size = 0  # characters kept
        self._lines = 0  # that have ended
        self._begun = False  # the line behind them has content

    def feed(self, data: bytes, final: bool = False) -> None:
        """Takes the next bytes."""
        text = self._decoder.decode(data, final)
        ends = text.count("\n")
        if self._lines >= self._end or self._lines + ends < self._offset:
            self._lines += ends
            self._begun = not text.endswith("\n") if text else self._begun
            return
        first, *more = text.split("\n")
        self._add(first)
        for line in more:
            self._close()
            self._add(line)

    def _add(self, text: str) -> None:
        if text:
            self._begun = True
            if self._offset <= self._lines < self._end and self._size <= MAX_OUTPUT_BYTES:
                self._line.append(text)
                self._size += len(text)

    def _close(self) -> None:
        if self._offset <= self._lines < self._end:
            if self._size <= MAX_OUTPUT_BYTES or self._line:
                self._kept.append("".join(self._line))
                self._size += 1
            self._line = []
        self._lines, self._begun = self._lines + 1, False

    @property
    def full(self) -> bool:
        """Whether all wanted lines are there, and it is known that more follow."""
        return self._lines > self._end or self._lines == self._end and self._begun

    def result(self, path: str, modified_at: str, whole: bool) -> ReadResult:
        """The lines; whole: the file was read to its end."""
        if self._begun:
            self._close()
        if self._offset >= self._lines:
            return ReadResult(error=f"File '{path}': Line offset {self._offset} exceeds file length ({self._lines} lines)")
        shown = min(self._end, self._lines) - self._offset
        content = "\n".join(self._kept)
        encoded, most = content.encode(), MAX_OUTPUT_BYTES - len(TRUNCATION_MSG.encode())
        if len(encoded) > most or len(self._kept) < shown:
            content = encoded[:most].decode(errors="ignore")
            shown = content.count("\n") or 1  # a line that is cut is read again, but for one that is too long by itself
            content += TRUNCATION_MSG
        end = self._offset + shown
        return ReadResult(
            file_data=FileData(content=content, encoding="utf-8", modified_at=modified_at),
            total_lines=self._lines if whole else None,
            start_line=self._offset + 1,
            end_line=end,
            next_offset=end if end < self._lines or not whole else None,
        )


def replaced(text: str, old: str, new: str, replace_all: bool) -> tuple[str, int] | str:
    """The text with ``old`` replaced, and how often; or a code of what is wrong.

    Lines are shown with a newline alone, so ``old`` is tried with the ends of lines that the file has, too.
    """
    old_lf, new_lf = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    for a, b in ((old, new), (old_lf.replace("\n", "\r\n"), new_lf.replace("\n", "\r\n")), (old_lf, new_lf)):
        if count := text.count(a):
            return "multiple_occurrences" if count > 1 and not replace_all else (text.replace(a, b), count)
    return "string_not_found"


def edit_error(code: str, path: str, old: str) -> str:
    """A sentence for the model."""
    return {
        "file_not_found": f"Error: File '{path}' not found",
        "permission_denied": f"Error: Permission denied editing file '{path}'",
        "is_directory": f"Error: '{path}' is not a regular file",
        "not_a_text_file": f"Error: File '{path}' is not a text file",
        "string_not_found": f"Error: String not found in file: '{old}'",
        "multiple_occurrences": f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences.",
    }.get(code, f"Error editing file '{path}': {code}")


class Pattern:
    """A glob as Deep Agents reads it, and what the server is asked for: that and, with hidden names, more."""

    def __init__(self, pattern: str) -> None:
        self.matches: Callable[[str], bool] = compile_grep_include_glob(pattern)
        self.asked = pattern.lstrip("/") if "/" in pattern else "**/" + pattern

    def keeps(self, path: str, root: str) -> bool:
        """Whether the path, found beneath root, is meant."""
        return self.matches(beneath(path, root))


def beneath(path: str, root: str) -> str:
    """The path relative to root; its name alone if it is root."""
    root = root.rstrip("/") + "/"
    return path[len(root):] if path.startswith(root) else path.rsplit("/", 1)[-1]


def globbed(found: Any, pattern: Pattern, root: str) -> GlobResult:
    """The files among what the server found."""
    files = [info_of(f) for f in found["items"] if f["type"] == "file" and pattern.keeps(f["path"], root)]
    cut = found["truncated"] or len(files) > GLOB_MAX
    return GlobResult(matches=files[:GLOB_MAX], truncated=cut, truncation_reason="budget" if cut else None)


def grepped(found: Any, pattern: Pattern | None, root: str, max_count: int | None) -> GrepResult:
    """The matches among what the server found, without git's own files."""
    inside = ".git" in root.split("/")
    matches: list[Any] = [
        {"path": m["path"], "line": m["line"], "text": m["text"]} for m in found["items"]
        if (pattern is None or pattern.keeps(m["path"], root)) and (inside or ".git" not in beneath(m["path"], root).split("/")[:-1])
    ]
    cut = found["truncated"] or max_count is not None and len(matches) > max_count
    return GrepResult(matches=matches[:max_count], truncated=cut)


def response_of(r: Result, timeout: float) -> ExecuteResponse:
    """What came of a command, as the model sees it: all it wrote, standard error last."""
    output = r.stdout
    for more in (r.stderr, note_of(r, timeout)):
        if more:
            output += ("\n" if output and not output.endswith("\n") else "") + more
    return ExecuteResponse(output=output, exit_code=r.exit_code, truncated=r.stdout_truncated or r.stderr_truncated)


def note_of(r: Result, timeout: float) -> str:
    """Why the command ended otherwise than by itself."""
    if r.reason == "timeout":
        return f"Error: Command timed out after {timeout:g} seconds"
    return f"Error: {r.reason}" if r.reason else ""
