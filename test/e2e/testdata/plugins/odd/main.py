"""A hook that breaks in all ways that a command names: `: WAY`."""

import json
import os
import sys


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def flood(stream):
    for _ in range(1600):
        stream.write("x" * 65536)
    stream.flush()


for line in sys.stdin:
    message = json.loads(line)
    request = message.get("id")
    if message["method"] == "initialize":
        send(id=request, result={"protocol": 1})
        continue
    if message["method"] == "shutdown":
        break
    if request is None:
        continue
    event = message["params"]
    way = event["tool_input"].get("command", "").removeprefix(": ").split(";")[0]
    if event["hook_event_name"] == "PostToolUse":
        way = {"deaf": "die"}.get(way, "")
    if way == "die":
        os._exit(3)
    elif way == "hang":
        continue
    elif way == "flood":
        flood(sys.stdout)
    elif way == "wrong id":
        send(id=request + 1000, result={})
    elif way == "nonsense":
        send(id=request, result={"hookSpecificOutput": {"permissionDecision": "perhaps"}})
    elif way == "text":
        print("hello", flush=True)
    elif way == "twice":
        send(id=request, result={})
        send(id=request, result={"decision": "block", "reason": "the second answer"})
    elif way == "noise":
        flood(sys.stderr)
        send(id=request, result={})
    else:
        send(id=request, result={})
