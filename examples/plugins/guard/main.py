"""A hook as a plug-in: JSON-RPC 2.0 on stdin and stdout, one message a line."""

import json
import re
import sys


def decide(event):
    command = event.get("tool_input", {}).get("command", "")
    if re.search(r"\brm\s+-\w*r\w*\s+(/|\*)", command):
        return {"permissionDecision": "deny", "permissionDecisionReason": "it would remove all files"}
    if re.search(r"\b(git push|npm publish)\b", command):
        return {"permissionDecision": "ask", "permissionDecisionReason": "it publishes something"}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "shutdown":
        break
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        answer["result"] = {"protocol": 1}
    elif message["method"] == "hook":
        answer["result"] = {"hookSpecificOutput": decide(message["params"])}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
