[ -f config.json ] || { echo "there is no config.json"; exit 1; }
python3 - <<'END'
import json
try:
    got = json.load(open("config.json"))
except ValueError as e:
    raise SystemExit(f"config.json is no JSON: {e}")
want = {
    "version": 2,
    "server": {"host": "0.0.0.0", "port": 8443, "timeout_ms": 2500},
    "log": {"level": "debug"},
    "users": [{"name": "Bob", "roles": ["editor", "reader"]}, {"name": "ann", "roles": ["reader"]}, {"name": "zoe", "roles": ["admin", "editor"]}],
    "paths": {"data": "/home/app/data", "logs": "/var/log/app", "odd": "/srv/~backup"},
    "cache": {"bytes": 67108864},
    "dropped": ["cache.kind", "server.banner"],
}
if isinstance(got, dict) and isinstance(got.get("users"), list) and [u.get("name") for u in got["users"] if isinstance(u, dict)] == ["ann", "Bob", "zoe"]:
    got["users"] = [got["users"][1], got["users"][0], got["users"][2]]  # sorted without regard to case
if not isinstance(got, dict) or got.keys() != want.keys():
    raise SystemExit(f"its keys are {sorted(got)}, not {sorted(want)}")
for k in want:
    if got[k] != want[k]:
        raise SystemExit(f"{k} is {json.dumps(got[k])}, not {json.dumps(want[k])}")
END
