no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
printf 'largest 5.0\nreport 4 numbers, mean 2.5\nmean 3.0\nproduct 24.0\n' >/tmp/want.$$
python3 run.py >/tmp/got.$$ 2>/tmp/err.$$
same=$(cmp /tmp/got.$$ /tmp/want.$$ >/dev/null 2>&1 && echo yes)
words=$(tail -n 1 /tmp/err.$$)
rm -f /tmp/want.$$ /tmp/got.$$ /tmp/err.$$
[ "$same" = yes ] || no "run.py does not print what it printed: $words"
python3 - <<'END'
import ast, pathlib
tree = ast.parse(pathlib.Path("tools.py").read_text())
names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
want = ["largest", "mean", "total", "product", "job_report"]
if names != want:
    left, gone = [n for n in names if n not in want], [n for n in want if n not in names]
    raise SystemExit(f"still there: {left}; missing: {gone}")
END
