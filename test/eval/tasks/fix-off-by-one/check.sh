no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
python3 - <<'END' || exit 1
import pages
items = list(range(1, 36))
cases = [
    ("page_count(35, 10)", pages.page_count(35, 10), 4),
    ("page_count(30, 10)", pages.page_count(30, 10), 3),
    ("page_count(1, 10)", pages.page_count(1, 10), 1),
    ("page_count(0, 10)", pages.page_count(0, 10), 0),
    ("page 1 of ten", pages.page(items, 1, 10), items[:10]),
    ("page 2 of ten", pages.page(items, 2, 10), items[10:20]),
    ("page 4 of ten", pages.page(items, 4, 10), items[30:]),
    ("page 3 of one", pages.page(items, 3, 1), [3]),
    ("span(2, 10, 35)", pages.span(2, 10, 35), "11-20 of 35"),
    ("span(4, 10, 35)", pages.span(4, 10, 35), "31-35 of 35"),
]
for name, got, want in cases:
    if got != want:
        raise SystemExit(f"{name} is {got!r}, not {want!r}")
END
grep -q '"31-35 of 35"' test_pages.py && grep -q 'page_count(30, 10), 3' test_pages.py || no "test_pages.py was changed"
python3 -m unittest -q >/dev/null 2>&1 || no "the tests fail"
