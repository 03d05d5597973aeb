no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
python3 - <<'END' || exit 1
import inspect, thermostat as m
if not inspect.isclass(getattr(m, "Thermostat", None)):
    raise SystemExit("there is no class Thermostat")
for name in ("reading", "hours", "history", "seen", "count_on", "heating"):
    if hasattr(m, name):
        raise SystemExit(f"thermostat.{name} is still there")
a, b = m.Thermostat(20), m.Thermostat(10, band=2)
got = [a.reading(18), b.reading(9), a.reading(20.5), b.reading(7), a.reading(21.5), b.reading(11.5), a.reading(20)]
if got != [True, False, True, True, False, True, False]:
    raise SystemExit(f"two side by side say {got}")
if (a.hours(), b.hours()) != (2, 2):
    raise SystemExit(f"they were on for {a.hours()} and {b.hours()} hours")
if (a.history(), b.history()) != ([18, 20.5, 21.5, 20], [9, 7, 11.5]):
    raise SystemExit(f"they have seen {a.history()} and {b.history()}")
a.history().append(1)
if len(a.history()) != 4:
    raise SystemExit("who asks for the history can change it")
END
got=$(python3 house.py 2>&1 | tr '\n' ';')
[ "$got" = "house on on on off off on 4 21.5;cellar on on off 2 14;" ] || no "house.py prints: $got"
