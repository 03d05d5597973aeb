[ -f answer.json ] || { echo "there is no answer.json"; exit 1; }
python3 - <<'END'
import json
want = {
    "commit": "52241282a3791ced8c364471e1f30644561fcd76",
    "author": "bob",
    "removed": "8bd836d0bb73b467a856259c3832d1b34c43b204",
    "branches": ["hotfix", "refunds"],
}
try:
    a = json.load(open("answer.json"))
    got = {k: a.get(k) for k in want}
except (ValueError, AttributeError) as e:
    raise SystemExit(f"answer.json is no JSON object: {e}")
for k in want:
    if got[k] != want[k]:
        raise SystemExit(f"{k} is not {got[k]!r}")
END
