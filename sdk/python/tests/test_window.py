"""The lines of a file that Deep Agents see, against all lines of it."""

import random

import pytest

pytest.importorskip("deepagents")

from deepagents.backends.protocol import ReadResult
from deepagents.backends.sandbox import MAX_OUTPUT_BYTES, TRUNCATION_MSG

from skete import _deepagents_core as core


def window(data: bytes, offset: int, limit: int, cuts: int) -> ReadResult:
    w = core.Window(offset, limit)
    for i in range(0, len(data), cuts):
        w.feed(data[i : i + cuts])
    w.feed(b"", True)
    return w.result("/f", "", True)


def test_lines_are_those_of_the_whole_file_however_it_is_cut() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        text = "".join(rng.choice(["a", "é", "\n", "\n", "\r\n", "\r", "👋"]) for _ in range(rng.randint(1, 12)))
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        offset, limit = rng.randint(0, 8), rng.randint(1, 8)
        got = window(text.encode(), offset, limit, rng.randint(1, 6))
        if offset >= len(lines):
            assert got.error == f"File '/f': Line offset {offset} exceeds file length ({len(lines)} lines)", text
            continue
        end = min(len(lines), offset + limit)
        assert got.file_data is not None and got.error is None, (text, offset, limit)
        assert (got.file_data["content"], got.total_lines, got.start_line, got.end_line, got.next_offset) == \
            ("\n".join(lines[offset:end]), len(lines), offset + 1, end, end if end < len(lines) else None), (text, offset, limit)


@pytest.mark.parametrize(("line", "count", "end"), [("x" * 999, 2000, 511), ("y" * 600_000, 3, 1), ("世" * 1000, 400, 170)])
def test_a_page_that_is_too_large_is_cut_and_goes_on_behind_the_last_whole_line(line: str, count: int, end: int) -> None:
    got = window("\n".join([line] * count).encode(), 0, count, 1 << 16)
    assert got.file_data is not None
    content = got.file_data["content"]
    assert content.endswith(TRUNCATION_MSG) and len(content.encode()) <= MAX_OUTPUT_BYTES
    assert (got.start_line, got.end_line, got.next_offset, got.total_lines) == (1, end, end, count)
    assert content.removesuffix(TRUNCATION_MSG).count("\n") in (end, 0)


@pytest.mark.parametrize(("text", "old", "new", "every", "want"), [
    ("a\r\nb\r\n", "a\nb", "c\nd", False, ("c\r\nd\r\n", 1)),
    ("a\nb", "a\r\nb", "c\r\nd", False, ("c\nd", 1)),
    ("aXaX", "X", "", True, ("aa", 2)),
    ("aXaX", "X", "", False, "multiple_occurrences"),
    ("a", "b", "c", False, "string_not_found"),
])
def test_replaced(text: str, old: str, new: str, every: bool, want: object) -> None:
    assert core.replaced(text, old, new, every) == want
