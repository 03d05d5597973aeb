for f in totals.csv unknown.csv; do [ -f $f ] || { echo "there is no $f"; exit 1; }; done
python3 - <<'END'
import csv
def read(name):
    with open(name, newline="", encoding="utf-8") as f:
        return [r for r in csv.reader(f) if r]
def compare(name, want):
    got = read(name)
    for i, row in enumerate(want):
        if i >= len(got) or got[i] != row:
            raise SystemExit(f"row {i + 1} of {name} is {got[i] if i < len(got) else 'missing'}, not {row}")
    if len(got) > len(want):
        raise SystemExit(f"{name} has {len(got)} rows, not {len(want)}")
compare("totals.csv", [["id", "name", "orders", "total"], ["2", 'Ray "Bob" Ltd.', "2", "-0.10"], ["7", "Line\nBreak", "1", "12.00"],
    ["10", "Lee, Ann", "2", "1250.70"], ["31", "Nora", "0", "0.00"]])
compare("unknown.csv", [["order", "customer", "status", "amount", "note"], ["A6", "99", "paid", "5,00", "who, is this?"], ["A8", "", "paid", "1,00", ""]])
END
