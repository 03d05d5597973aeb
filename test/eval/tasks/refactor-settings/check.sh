no() { echo "$*"; exit 1; }
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
export PYTHONDONTWRITEBYTECODE=1
[ -f settings.ini ] || no "there is no settings.ini"
cp ship.py settings.ini "$t/" && cd / || no "no ship.py"
of() {
	want=$1
	shift
	got=$(python3 "$t/ship.py" "$@" 2>&1 | tail -n 1)
	[ "$got" = "$want" ] || no "ship.py $* prints '$got', not '$want' ($when)"
}
when='values of today'
of 6.00 2 10
of 0.00 2 80
of 15.00 2 80 express
of 24.00 20 79.99
of 60.00 20 10 express
grep -q '^\[shipping\]' "$t/settings.ini" || no "settings.ini has no section [shipping]"
for line in 'base 4.5' 'per_kg 0.75' 'free_from 80' 'express_factor 2.5' 'heavy_from 20'; do
	python3 - "$t/settings.ini" $line <<'END' || exit 1
import configparser, sys
p = configparser.ConfigParser()
p.read(sys.argv[1])
if not p.has_option("shipping", sys.argv[2]) or float(p["shipping"][sys.argv[2]]) != float(sys.argv[3]):
    raise SystemExit(f"settings.ini does not say {sys.argv[2]} = {sys.argv[3]}")
END
done
printf '[shipping]\nbase = 3\nper_kg = 1\nfree_from = 50\nexpress_factor = 3\nheavy_from = 10\n' >"$t/settings.ini"
when='other values'
of 5.00 2 10
of 0.00 2 50
of 16.00 10 10
of 15.00 2 60 express
rm "$t/settings.ini"
python3 "$t/ship.py" 1 1 >"$t/out" 2>"$t/err"
status=$?
[ $status -eq 2 ] && grep -q 'settings.ini is missing' "$t/err" || no "without settings.ini: status $status, $(tail -n 1 "$t/err")"
