"""A vendor's driver as a plug-in, for llmtest: it passes requests on to a server over HTTP,
whose answer is lines of deltas and a result."""

import http.client
import json
import os
import sys
import threading
import urllib.parse

lock = threading.Lock()
under_way = {}


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


class Failed(Exception):
    def __init__(self, text, **data):
        super().__init__(text)
        self.data = data


def refused(response, url, key):
    body = response.read(65536).decode("utf-8", "replace")
    try:
        said = json.loads(body)
    except ValueError:
        said = {}
    data = {"status": response.status, "url": url}
    if said.get("trouble"):
        data["trouble"] = said["trouble"]
    if 300 <= response.status < 400:
        data["trouble"] = "bad_request"
    if response.getheader("Retry-After"):
        data["retry_after_ms"] = int(response.getheader("Retry-After")) * 1000
    raise Failed(said.get("message", "").replace(key, "***"), **data)


def relay(request, params, conn, to):
    url, key = to["url"], to["key"]
    params["model"] = to["model"]
    body = json.dumps(params, ensure_ascii=False).encode()
    conn.request("POST", "/generate", body, {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    response = conn.getresponse()
    if response.status != 200:
        refused(response, url, key)
    if "jsonl" not in response.getheader("Content-Type", ""):
        raise Failed("the answer is a page", trouble="malformed")
    for line in response:
        if line.startswith(b":") or not line.strip():
            continue
        try:
            part = json.loads(line)
        except ValueError:
            if not line.endswith(b"\n") and line.startswith(b'{"'):
                break
            raise Failed("the answer is no JSON", trouble="malformed")
        if "delta" in part:
            send({"method": "model/delta", "params": {"id": request, **part["delta"]}})
        elif "error" in part:
            error = part["error"]
            raise Failed(error["message"], **{k: v for k, v in error.items() if k != "message"})
        else:
            return part["result"]
    raise Failed("the answer ended before its end", trouble="transport")


def generate(request, params):
    with open(os.environ["RELAY_TO"]) as f:
        to = json.load(f)[params["model"]]
    conn = http.client.HTTPConnection(urllib.parse.urlsplit(to["url"]).netloc, timeout=60)
    try:
        with lock:
            under_way[request] = conn
        result = relay(request, params, conn, to)
        send({"id": request, "result": result})
    except Failed as e:
        send({"id": request, "error": {"code": 1, "message": str(e), "data": e.data}})
    except Exception as e:  # the connection broke
        send({"id": request, "error": {"code": 2, "message": type(e).__name__, "data": {"trouble": "transport"}}})
    finally:
        with lock:
            under_way.pop(request, None)
        conn.close()


def cancel(request):
    with lock:
        conn = under_way.get(request)
    if conn is not None and conn.sock is not None:
        try:
            conn.sock.shutdown(2)
        except OSError:
            pass


for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        send({"id": message["id"], "result": {"protocol": 1}})
    elif message["method"] == "model/generate":
        threading.Thread(target=generate, args=(message["id"], message["params"]), daemon=True).start()
    elif message["method"] == "cancel":
        cancel(message["params"]["id"])
    elif message["method"] == "shutdown":
        break
