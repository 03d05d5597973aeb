no() { echo "$*"; exit 1; }
[ -f cache.py ] || no "there is no cache.py"
export PYTHONDONTWRITEBYTECODE=1
timeout 60 python3 - <<'END' || exit 1
import time
from cache import Cache
now = 0
def want(what, got, right):
    if got != right:
        raise SystemExit(f"{what}: {got!r}, not {right!r}")
c = Cache(2, 10, lambda: now)
c.put("a", 1); c.put("b", 2); c.put("a", 3); c.put("c", 4)
want("a put again is used", (c.get("a"), c.get("b"), c.get("c"), len(c)), (3, None, 4, 2))
c = Cache(2, 10, lambda: now)
c.put("a", 1); now = 5; c.put("b", 2); c.get("a"); now = 10; c.put("c", 3)
want("what is too old makes room, though it was used last", (c.get("a"), c.get("b"), c.get("c")), (None, 2, 3))
c = Cache(3, 10, lambda: now)
now = 0; c.put("a", 1); now = 6; c.put("a", 2); now = 12
want("put again begins its time anew", c.get("a"), 2)
now = 16
want("and then it ends", (c.get("a"), len(c)), (None, 0))
c = Cache(2, 10, lambda: now)
c.put("n", None)
want("None is a value", (c.get("n", 7), len(c)), (None, 1))
c.put("x", 0)
want("0 is a value", c.get("x", 7), 0)
c = Cache(1, 10, lambda: now)
c.put("a", 1); c.put("b", 2)
want("size one", (c.get("a"), c.get("b"), len(c)), (None, 2, 1))
began = time.process_time()
c = Cache(100_000, 10**9, lambda: now)
for i in range(120_000):
    c.put(i, i)
for i in range(120_000):
    c.get(i)
    c.put(i, i)
want("a large one", len(c), 100_000)
if time.process_time() - began > 20:
    raise SystemExit("it is too slow with a hundred thousand entries")
END
timeout 60 python3 -m unittest -q >/dev/null 2>&1 || no "the tests fail"
