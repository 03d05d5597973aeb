"""Client of skete: machines for AI agents, with a history that can be undone.

    from skete import Skete

    with Skete() as skete, skete.create() as sandbox:
        sandbox.files.write("hello.py", "print('hello')")
        print(sandbox.run_command("python3 hello.py").stdout)
        sandbox.undo()

``AsyncSkete`` is the same for asyncio. Answers are dictionaries, of the types in ``skete.types``; what is refused
raises an error of ``skete.errors``.
"""

from . import types
from ._async import AsyncFiles, AsyncHistory, AsyncProcess, AsyncRun, AsyncSandbox, AsyncSkete
from ._core import Output, Result
from ._sync import Files, History, Process, Run, Sandbox, Skete
from .errors import (
    CommandError, ConflictError, CorruptError, DeniedError, ExistsError, InternalError,
    InvalidError, LimitError, NotFoundError, SketeError, UnavailableError, UnsupportedError,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncFiles", "AsyncHistory", "AsyncProcess", "AsyncRun", "AsyncSandbox", "AsyncSkete", "CommandError", "ConflictError",
    "CorruptError", "DeniedError", "ExistsError", "Files", "History", "InternalError", "InvalidError", "LimitError",
    "NotFoundError", "Output", "Process", "Result", "Run", "Sandbox", "Skete", "SketeError", "UnavailableError",
    "UnsupportedError", "types",
]
