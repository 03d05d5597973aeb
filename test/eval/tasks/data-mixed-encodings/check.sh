[ -f customers.csv ] || { echo "there is no customers.csv"; exit 1; }
python3 - <<'END'
import csv, io
data = open("customers.csv", "rb").read()
if data.startswith(b"\xef\xbb\xbf"):
    raise SystemExit("it begins with a byte order mark")
if b"\r" in data:
    raise SystemExit("its lines end in CR LF")
try:
    text = data.decode("utf-8")
except UnicodeDecodeError as e:
    raise SystemExit(f"it is not UTF-8: {e}")
rows = list(csv.reader(io.StringIO(text, newline="")))
want = [["name", "city", "shop"],
    ["Ann Lee", "York", "north"], ["Jörg Müller", "Kiel", "north"], ["Löhr, Käthe", "München", "south"],
    ["O'Neil, \"Red\"", "Cork", "west"], ["Peña € Söhne", "Cadiz", "south"], ["Zoë Åkesson", "Malmö", "north"],
    ["Öz Tür", "Graz", "south"], ["Łukasz Żak", "Łódź", "west"]]
for i, row in enumerate(want):
    if i >= len(rows) or rows[i] != row:
        raise SystemExit(f"row {i + 1} is {rows[i] if i < len(rows) else 'missing'}, not {row}")
if len(rows) > len(want):
    raise SystemExit(f"there are {len(rows)} rows, not {len(want)}")
END
