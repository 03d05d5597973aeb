"""Bounds of what an execution may send. A sandbox has half a gigabyte unless more is asked
for, and a client that keeps all that it is sent has little more."""

OUTPUT_MAX = 16 << 20  # bytes of stdout and stderr together
RESULT_MAX = 16 << 20  # bytes of one format of one result
RESULTS_MAX = 64 << 20  # bytes of all results together
CELLS_MAX = 1_000_000  # of a data frame


def size_of(value):
    """The bytes that a value of a result takes on its way, or nearly."""
    if isinstance(value, bytes):
        return len(value) * 4 // 3
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(k) + size_of(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return sum(size_of(v) for v in value)
    return 8


def left_out(what, size, most):
    return f"{what} of {size} bytes is left out: at most {most} are sent\n"


def beyond(most):
    return f"output beyond {most} bytes is left out\n"
