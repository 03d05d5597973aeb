"""A model vendor as a plug-in: JSON-RPC 2.0 on stdin and stdout, one message a line.

"call NAME {…}" as the last words of the user makes a call of that tool; everything else is
repeated. A real one would ask its vendor where generate does that.
"""

import json
import sys
import threading

lock = threading.Lock()
cancelled = set()


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def delta(request, kind, **more):
    send({"method": "model/delta", "params": {"id": request, "kind": kind, **more}})


def last_words(messages):
    for block in messages[-1]["blocks"]:
        if block["kind"] == "text":
            return block["text"]
        if block["kind"] == "tool_result":
            return "".join(b.get("text", "") for b in block["result"]["blocks"])
    return ""


def generate(request, params):
    said = last_words(params["messages"])
    if said.startswith("call "):
        _, name, args = said.split(" ", 2)
        delta(request, "tool_call", index=0, call_id="call_1", name=name)
        delta(request, "tool_args", index=0, text=args)
    else:
        for word in said.split(" "):
            if request in cancelled:
                return send({"id": request, "error": {"code": -32800, "message": "cancelled"}})
            delta(request, "text", text=word + " ")
    usage = {"input": len(json.dumps(params)) // 4, "output": len(said) // 4 + 1}
    send({"id": request, "result": {"usage": usage, "model": params["model"]}})


def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, request, params = message["method"], message.get("id"), message.get("params")
        if method == "initialize":
            send({"id": request, "result": {"protocol": 1}})
        elif method == "model/generate":
            threading.Thread(target=generate, args=(request, params), daemon=True).start()
        elif method == "cancel":
            cancelled.add(params["id"])
        elif method == "shutdown":
            return
        elif request is not None:
            send({"id": request, "error": {"code": -32601, "message": "no such method"}})


main()
