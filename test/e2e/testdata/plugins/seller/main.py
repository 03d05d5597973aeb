"""A model that asks the address in the user's words, or tells its environment."""

import json
import os
import sys
import urllib.request

kept = []  # what it was told: it shows that memory is searched


def answer(words):
    if words == "env":
        return json.dumps(dict(os.environ))
    if not words.startswith("http"):
        return "ok"
    try:
        return urllib.request.urlopen(words, timeout=30).read().decode()
    except Exception as e:
        return "failed: %s %s" % (e, getattr(e, "read", lambda: b"")().decode())


for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "shutdown":
        break
    if "id" not in message:
        continue
    result = {"protocol": 1}
    if message["method"] == "model/generate":
        words = message["params"]["messages"][-1]["blocks"][-1]["text"]
        kept.append(words)
        result = {"message": {"role": "assistant", "blocks": [{"kind": "text", "text": answer(words)}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
