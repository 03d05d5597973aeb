"""Errors of the client. The class of an error says who must act, as the server's does.

    try:
        skete.sandbox("sbx_…").get()
    except skete.NotFoundError as e:
        print(e, e.hint)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .types import Problem

__all__ = [
    "CommandError", "ConflictError", "CorruptError", "DeniedError", "ExistsError", "InternalError",
    "InvalidError", "LimitError", "NotFoundError", "SketeError", "UnavailableError", "UnsupportedError",
]


class SketeError(Exception):
    """What the server refused, or why it could not be asked.

    Attributes:
        error_class: who must act: ``invalid``, ``not_found``, ``exists``, ``denied``, ``conflict``,
            ``unsupported``, ``limit``, ``unavailable``, ``corrupt`` or ``internal``.
        hint: what to do about it, or ``""``.
        code: which refusal it is where the class does not say it, for example ``file_not_found``;
            `types.Problem` lists them.
        status: of the HTTP answer; 0 where there was none.
        problem: the whole answer (RFC 9457).
    """

    error_class = "internal"

    def __init__(self, message: str, *, hint: str = "", status: int = 0, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status
        self.problem: Problem | None = problem
        self.code: str = (problem or {}).get("code", "")
        self.retry_after = 0.0

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class InvalidError(SketeError):
    """The request is wrong: the caller must change it."""

    error_class = "invalid"


class NotFoundError(SketeError):
    """There is no such thing, or it is another tenant's."""

    error_class = "not_found"


class ExistsError(SketeError):
    """It is there already."""

    error_class = "exists"


class DeniedError(SketeError):
    """The key is not good, or not good for this."""

    error_class = "denied"


class ConflictError(SketeError):
    """Something was changed meanwhile: look again."""

    error_class = "conflict"


class UnsupportedError(SketeError):
    """The sandbox's provider cannot do it."""

    error_class = "unsupported"


class LimitError(SketeError):
    """A limit is reached."""

    error_class = "limit"


class UnavailableError(SketeError):
    """The server or the sandbox does not answer now; what can be repeated was repeated."""

    error_class = "unavailable"


class CorruptError(SketeError):
    """What is kept is damaged: an operator must look."""

    error_class = "corrupt"


class InternalError(SketeError):
    """A fault of the server, or an answer that is not what was agreed."""


class CommandError(SketeError):
    """A command that was run with ``check=True`` did not succeed; ``result`` says how."""

    error_class = "invalid"

    def __init__(self, result: Any) -> None:
        super().__init__(f"exit status {result.exit_code}" + (f" ({result.reason})" if result.reason else ""))
        self.result = result


_CLASSES: dict[str, type[SketeError]] = {
    c.error_class: c
    for c in (InvalidError, NotFoundError, ExistsError, DeniedError, ConflictError, UnsupportedError, LimitError,
              UnavailableError, CorruptError, InternalError)
}

# The class of an answer that is not skete's own, for example of a proxy before it.
_BY_STATUS = {
    401: "denied", 403: "denied", 404: "not_found", 408: "unavailable", 409: "conflict", 412: "conflict",
    429: "limit", 501: "unsupported", 502: "unavailable", 503: "unavailable", 504: "unavailable",
}

_RETRY_AFTER_MAX = 10.0


def of_problem(problem: Problem, status: int = 0) -> SketeError:
    """The error that a Problem of the server means."""
    status = status or problem.get("status", 0)
    known = problem.get("class", "")
    if known not in _CLASSES:
        known = _BY_STATUS.get(status, "invalid" if 400 <= status < 500 else "internal")
    fields = "; ".join(_field(f) for f in problem.get("errors") or [] if f.get("message") != problem.get("detail"))
    detail = problem.get("detail") or problem.get("title") or "the server refused without a reason"
    if fields:
        detail = fields if detail == "validation failed" else f"{detail}; {fields}"
    return _CLASSES[known](detail, hint=problem.get("hint", ""), status=status, problem=problem)


def _field(field: Any) -> str:
    location = field.get("location", "")
    for place in ("body.", "query.", "path."):
        location = location.removeprefix(place)
    message: str = field.get("message", "")
    return message if location in ("", "body") else f"{location}: {message}"


def of_answer(status: int, body: bytes, retry_after: str = "", reason: str = "") -> SketeError:
    """The error that an answer which is no success means."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": reason or f"HTTP status {status}"}
    error = of_problem(problem, status)  # type: ignore[arg-type]
    if retry_after.isdigit():
        error.retry_after = min(float(retry_after), _RETRY_AFTER_MAX)
    return error
