no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export PYTHONDONTWRITEBYTECODE=1
cp find.py "$t/" && cd "$t" || no "no find.py"
python3 - <<'END' || no "the test's database cannot be made"
import sqlite3
db = sqlite3.connect("customers.db")
db.execute("CREATE TABLE customers (name TEXT, email TEXT)")
db.executemany("INSERT INTO customers VALUES (?, ?)", [("Miller", "miller@example.com"), ("O'Brien", "obrien@example.com"),
    ("OBrien", "other@example.com"), ('The "Duke"', "duke@example.com"), ("N'Golo d'Or", "ngolo@example.com"), ("O''Hara", "two@example.com"), ("50%", "percent@example.com"), ("?", "mark@example.com")])
db.commit()
END
of() {
	got=$(python3 find.py "$1" 2>err)
	status=$?
	[ "$got" = "$2" ] && [ $status -eq $3 ] || no "for $1 it prints '$got' with status $status $(tail -n 1 err)"
}
of Miller miller@example.com 0
of "O'Brien" obrien@example.com 0
of OBrien other@example.com 0
of 'The "Duke"' duke@example.com 0
of "N'Golo d'Or" ngolo@example.com 0
of "O''Hara" two@example.com 0
of '50%' percent@example.com 0
of '?' mark@example.com 0
of "' OR '1'='1" "not found" 1
of "x' UNION SELECT name FROM customers --" "not found" 1
of "" "not found" 1
