[ -f answer.json ] || { echo "there is no answer.json"; exit 1; }
python3 - <<'END'
import json
try:
    a = json.load(open("answer.json"))
    got = {k: a.get(k) for k in ("culprit", "began", "failed", "why")}
except (ValueError, AttributeError) as e:
    raise SystemExit(f"answer.json is no JSON object: {e}")
if got["culprit"] != "resize-images":
    raise SystemExit(f"the culprit is not {got['culprit']!r}")
if got["began"] != "2024-06-03T14:05:12Z":
    raise SystemExit(f"it did not begin at {got['began']!r}")
if got["failed"] != 36:
    raise SystemExit(f"not {got['failed']!r} requests failed")
if not isinstance(got["why"], str) or len(got["why"]) < 20:
    raise SystemExit("it does not say why")
END
