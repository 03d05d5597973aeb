[ -f people.csv ] || { echo "there is no people.csv"; exit 1; }
python3 - <<'END'
import csv
with open("people.csv", newline="", encoding="utf-8") as f:
    rows = [r for r in csv.reader(f) if r]
want = [["name", "email", "phone", "city", "updated"],
    ["A. Lee", "ANN@example.com", "+49 421 1234", "Bremen", "2024-02-01"],
    ["Bob Ray", "bob@example.com", "0049 30 555-1", "Berlin", "2024-01-01"],
    ["Cleo", "", "", "Rome", "2024-03-04"],
    ["Cleo", "cleo@example.com", "", "Oslo", "2024-03-03"],
    ["Dan", "dan@example.com", "04", "", "2024-03-05"],
    ["Dana", "dana@example.com", "", "Graz", "2024-03-05"]]
if rows[:1] != want[:1]:
    raise SystemExit(f"the header is {rows[:1]}")
if [r[0] for r in rows[1:]] != [r[0] for r in want[1:]]:
    raise SystemExit(f"the people are {[r[0] for r in rows[1:]]}, not {[r[0] for r in want[1:]]}")
for got, right in zip(sorted(rows[1:]), sorted(want[1:])):
    if [got[1].lower()] + got[2:] != [right[1].lower()] + right[2:]:
        raise SystemExit(f"a row is {got}, not {right}")
END
