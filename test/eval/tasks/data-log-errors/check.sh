[ -f errors.csv ] || { echo "there is no errors.csv"; exit 1; }
python3 - <<'END'
import csv
with open("errors.csv", newline="", encoding="utf-8") as f:
    rows = [r for r in csv.reader(f, strict=True) if r]
want = [["time", "logger", "exception", "message", "lines"],
    ["2024-06-03 10:00:05,120", "app.Store", "IOException", 'cannot save "June, 3rd"', "4"],
    ["2024-06-03 10:02:11,900", "app.net.Client", "", "no answer", "1"],
    ["2024-06-03 10:04:42,333", "app.Report", "ParseException", "row 7: a, b and c", "8"]]
for i, row in enumerate(want):
    if i >= len(rows) or rows[i] != row:
        raise SystemExit(f"row {i + 1} is {rows[i] if i < len(rows) else 'missing'}, not {row}")
if len(rows) > len(want):
    raise SystemExit(f"there are {len(rows)} rows, not {len(want)}")
END
