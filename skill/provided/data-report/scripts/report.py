#!/usr/bin/env python3
"""A report with plots of a table: one HTML file, and the facts as JSON on stdout.

    report.py FILE [--out report.html] [--by COLUMN] [--x COLUMN]

FILE is .csv, .tsv, .json (a list of objects) or .jsonl. Exit status: 0, or 2 with
the reason on stderr.
"""
import argparse
import collections
import csv
import datetime
import html
import json
import math
import os
import statistics
import sys

FILE_BYTES_MAX = 256 << 20
ROWS_MAX = 1_000_000
COLUMNS_MAX = 200
MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}


class Bad(Exception):
    """What is wrong with the input."""


def load(path):
    """The columns and rows of a file; every value is a text, a number, a truth or None."""
    if os.path.getsize(path) > FILE_BYTES_MAX:
        raise Bad(f"larger than {FILE_BYTES_MAX >> 20} MiB")
    kind = os.path.splitext(path)[1].lower()
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as f:
        if kind in (".json", ".jsonl", ".ndjson"):
            try:
                rows = json.load(f) if kind == ".json" else [json.loads(line) for line in f if line.strip()]
            except ValueError as e:
                raise Bad(f"no JSON: {e}")
            if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
                raise Bad("not a list of objects")
            names = list(dict.fromkeys(k for r in rows for k in r))
            rows = [[flat(r.get(n)) for n in names] for r in rows]
        else:
            csv.field_size_limit(1 << 20)
            sample = f.read(64 << 10)
            f.seek(0)
            try:
                dialect = csv.Sniffer().sniff(sample, ",;\t|")
            except csv.Error:
                dialect = csv.excel_tab if kind == ".tsv" else csv.excel
            try:
                table = [r for _, r in zip(range(ROWS_MAX + 2), csv.reader(f, dialect)) if r]
            except csv.Error as e:
                raise Bad(f"no table: {e}")
            if not table:
                raise Bad("the file is empty")
            names, rows = table[0], table[1:]
            rows = [(r + [""] * len(names))[: len(names)] for r in rows]
    if not names or not rows:
        raise Bad("there are no rows")
    if len(names) > COLUMNS_MAX or len(rows) > ROWS_MAX:
        raise Bad(f"more than {COLUMNS_MAX} columns or {ROWS_MAX} rows")
    seen = collections.Counter()
    unique = []
    for n in names:
        n = str(n).strip() or "column"
        seen[n] += 1
        unique.append(n if seen[n] == 1 else f"{n} ({seen[n]})")
    return unique, rows


def flat(v):
    return json.dumps(v) if isinstance(v, (list, dict)) else v


def missing(v):
    return v is None or isinstance(v, str) and v.strip().lower() in MISSING


def number(v):
    if isinstance(v, bool):
        return None
    if isinstance(v, str):
        v = v.strip().replace("_", "x")
        if v.count(",") and "." not in v.split(",")[-1] and len(v.split(",")[-1]) != 3:
            v = v.replace(",", ".", 1)
        v = v.replace(",", "")
    try:
        x = float(v)
    except (TypeError, ValueError):
        return None
    return x if math.isfinite(x) else None


def moment(v):
    """The seconds of a date or time in ISO 8601, or None."""
    if not isinstance(v, str) or len(v) < 8 or not v[:4].isdigit():
        return None
    try:
        t = datetime.datetime.fromisoformat(v.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return (t if t.tzinfo else t.replace(tzinfo=datetime.timezone.utc)).timestamp()


def describe(name, values):
    """The facts of a column, and its values as numbers where it is numeric or a time."""
    there = [v for v in values if not missing(v)]
    fact = {"column": name, "missing": len(values) - len(there), "distinct": len({str(v) for v in there})}
    for kind, parse in (("number", number), ("time", moment)):
        parsed = [parse(v) for v in there]
        good = [x for x in parsed if x is not None]
        if there and len(good) >= 0.95 * len(there):
            fact.update(type=kind, other=len(there) - len(good), **(numbers(good) if kind == "number" else times(good)))
            return fact, [None if missing(v) else parse(v) for v in values]
    fact["type"] = "text" if there else "empty"
    fact["most"] = collections.Counter(str(v)[:80] for v in there).most_common(10)
    return fact, None


def numbers(xs):
    xs = sorted(xs)
    q1, q2, q3 = (quantile(xs, q) for q in (0.25, 0.5, 0.75))
    low, high = q1 - 3 * (q3 - q1), q3 + 3 * (q3 - q1)
    return {"min": xs[0], "q1": q1, "median": q2, "q3": q3, "max": xs[-1], "mean": math.fsum(xs) / len(xs),
            "deviation": statistics.pstdev(xs), "outliers": sum(x < low or x > high for x in xs) if q3 > q1 else 0}


def times(xs):
    show = lambda s: datetime.datetime.fromtimestamp(s, datetime.timezone.utc).isoformat()
    return {"min": show(min(xs)), "max": show(max(xs))}


def quantile(xs, q):
    at = q * (len(xs) - 1)
    low = int(at)
    return xs[low] + (xs[min(low + 1, len(xs) - 1)] - xs[low]) * (at - low)


WIDTH, HEIGHT, LEFT, BOTTOM = 640, 220, 60, 40


def svg(body, title):
    return (f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{html.escape(title)}</title>{body}</svg>")


def short(x):
    return f"{x:.4g}"


def axis(low, high, label=short):
    y = HEIGHT - BOTTOM
    return (f'<path class="axis" d="M{LEFT} 10V{y}H{WIDTH - 10}"/>'
            f'<text x="{LEFT - 6}" y="20" text-anchor="end">{html.escape(label(high))}</text>'
            f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{html.escape(label(low))}</text>')


def bars(pairs, title):
    """A bar for each pair of a label and a number."""
    top = max([v for _, v in pairs] + [0]) or 1
    low = min([v for _, v in pairs] + [0])
    plot = HEIGHT - BOTTOM - 10
    step = (WIDTH - LEFT - 10) / len(pairs)
    y = lambda v: 10 + plot * (top - v) / (top - low)
    out = [axis(low, top)]
    for i, (label, v) in enumerate(pairs):
        x = LEFT + i * step
        out.append(f'<rect x="{x + 1:.1f}" y="{min(y(v), y(0)):.1f}" width="{max(step - 2, 0.5):.1f}" height="{abs(y(v) - y(0)):.1f}">'
                   f"<title>{html.escape(str(label))}: {short(v)}</title></rect>")
        if len(pairs) <= 12:
            out.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - 22}" text-anchor="middle">{html.escape(str(label)[:12])}</text>')
    return svg("".join(out), title)


def histogram(xs, title):
    low, high = min(xs), max(xs)
    n = min(40, max(5, int(math.sqrt(len(xs)))))
    counts = [0] * n
    for x in xs:
        counts[min(n - 1, int((x - low) / ((high - low) or 1) * n))] += 1
    width = (high - low) / n
    picture = bars([(f"{short(low + i * width)} to {short(low + (i + 1) * width)}", c) for i, c in enumerate(counts)], title)
    ends = (f'<text x="{LEFT}" y="{HEIGHT - 8}">{short(low)}</text>'
            f'<text x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">{short(high)}</text></svg>')
    return picture.replace("</svg>", ends)


def line(points, title, label=short):
    """A line through points, at most a thousand of them."""
    points = sorted(points)
    if len(points) > 1000:
        points = points[:: len(points) // 1000 + 1]
    (x0, x1) = points[0][0], points[-1][0]
    y0, y1 = min(y for _, y in points), max(y for _, y in points)
    plot = HEIGHT - BOTTOM - 10
    at = lambda p: f"{LEFT + (WIDTH - LEFT - 10) * (p[0] - x0) / ((x1 - x0) or 1):.1f},{10 + plot * (y1 - p[1]) / ((y1 - y0) or 1):.1f}"
    ends = (f'<text x="{LEFT}" y="{HEIGHT - 18}">{html.escape(label(x0))}</text>'
            f'<text x="{WIDTH - 10}" y="{HEIGHT - 18}" text-anchor="end">{html.escape(label(x1))}</text>')
    return svg(axis(y0, y1) + f'<polyline points="{" ".join(map(at, points))}"/>' + ends, title)


STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
table{border-collapse:collapse}td,th{border-bottom:1px solid #8886;padding:.2rem .6rem;text-align:left;vertical-align:top}
svg{width:100%;height:auto}rect{fill:#3b7dd8}polyline{fill:none;stroke:#3b7dd8;stroke-width:1.5}.axis{fill:none;stroke:currentColor}
text{font-size:11px;fill:currentColor}"""


def plots(names, columns, by, x):
    """Pictures of the columns: titles and SVG."""
    for i, (fact, xs) in enumerate(columns):
        name = names[i]
        if fact["type"] == "number":
            yield f"{name}: how often", histogram([v for v in xs if v is not None], f"{name}: how often")
            if x is not None and i != x and columns[x][1] is not None:
                points = [(a, b) for a, b in zip(columns[x][1], xs) if a is not None and b is not None]
                if len(points) > 1:
                    label = short if columns[x][0]["type"] == "number" else (lambda s: times([s])["min"][:16])
                    yield f"{name} over {names[x]}", line(points, f"{name} over {names[x]}", label)
            if by is not None and i != by[0]:
                groups = collections.defaultdict(list)
                for key, v in zip(by[1], xs):
                    if v is not None:
                        groups[str(key)].append(v)
                means = sorted(((k, math.fsum(v) / len(v)) for k, v in groups.items()), key=lambda p: -p[1])[:40]
                if means:
                    yield f"mean of {name} by {names[by[0]]}", bars(means, f"mean of {name} by {names[by[0]]}")
        elif fact["type"] == "text" and fact["most"]:
            yield f"{name}: most frequent", bars(fact["most"], f"{name}: most frequent")


def page(title, facts, pictures):
    rows = []
    for c in facts["columns"]:
        rest = ", ".join(f"{k} {short(v) if isinstance(v, float) else v}" for k, v in c.items() if k not in ("column", "type", "missing", "distinct", "most"))
        rows.append(f"<tr><th>{html.escape(c['column'])}</th><td>{c['type']}</td><td>{c['missing']}</td><td>{c['distinct']}</td><td>{html.escape(rest)}</td></tr>")
    figures = "".join(f"<h2>{html.escape(t)}</h2>{p}" for t, p in pictures)
    return (f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{html.escape(title)}</title>"
            f"<style>{STYLE}</style><h1>{html.escape(title)}</h1><p>{facts['rows']} rows, {facts['duplicates']} of them repeated.</p>"
            f"<table><tr><th>column<th>type<th>missing<th>distinct<th></tr>{''.join(rows)}</table>{figures}</html>")


def index(names, wanted):
    if wanted is None:
        return None
    if wanted not in names:
        raise Bad(f"there is no column {wanted!r}; there are {', '.join(names[:20])}")
    return names.index(wanted)


def main(argv):
    p = argparse.ArgumentParser(description="A report with plots of a table.")
    p.add_argument("file")
    p.add_argument("--out", default="report.html")
    p.add_argument("--by", help="a column: the means of the numbers by its values")
    p.add_argument("--x", help="a column: the numbers over it")
    args = p.parse_args(argv)
    try:
        names, rows = load(args.file)
        by, x = index(names, args.by), index(names, args.x)
        values = [[r[i] for r in rows] for i in range(len(names))]
        columns = [describe(n, v) for n, v in zip(names, values)]
        facts = {"file": args.file, "rows": len(rows), "duplicates": len(rows) - len({json.dumps(r) for r in rows}), "columns": [c for c, _ in columns]}
        pictures = plots(names, columns, None if by is None else (by, values[by]), x)
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(page(os.path.basename(args.file), facts, pictures))
    except (Bad, OSError) as e:
        print(f"report.py: {args.file}: {e}", file=sys.stderr)
        return 2
    facts["report"] = args.out
    print(json.dumps(facts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
