[ -f answer.json ] || { echo "there is no answer.json"; exit 1; }
python3 - <<'END'
import json
want = {"slowest": "/api/export", "p95_ms": 1156, "ip": "198.51.100.7", "requests": 422}
try:
    a = json.load(open("answer.json"))
    got = {k: a.get(k) for k in want}
except (ValueError, AttributeError) as e:
    raise SystemExit(f"answer.json is no JSON object: {e}")
for k in want:
    if got[k] != want[k]:
        raise SystemExit(f"{k} is not {got[k]!r}")
END
