no() { echo "$*"; exit 1; }
[ -f server.py ] || no "there is no server.py"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
cp server.py "$t/" && cd "$t" || no "no temporary folder"
printf '{"visits": 3}\n' >counters.json
PYTHONDONTWRITEBYTECODE=1 timeout 50 python3 - <<'END'
import concurrent.futures, http.client, json, os, socket, subprocess, sys, time
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
def ask(method, path):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        c.request(method, path)
        r = c.getresponse()
        body = r.read()
        kind = r.getheader("Content-Type", "")
        if not kind.startswith("application/json"):
            raise SystemExit(f"{method} {path} answers with the type {kind!r}")
        return r.status, json.loads(body)
    finally:
        c.close()
def want(method, path, status, body):
    got = ask(method, path)
    if got != (status, body):
        raise SystemExit(f"{method} {path} answers {got}, not {(status, body)}")
def start():
    p = subprocess.Popen([sys.executable, "server.py", str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open("log", "w"))
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return p
        except OSError:
            if p.poll() is not None:
                raise SystemExit("server.py ended: " + open("log").read()[-200:])
            time.sleep(0.1)
    p.kill()
    raise SystemExit("server.py does not listen")
missing = {"error": "not found"}
p = start()
try:
    want("GET", "/counters", 200, {"visits": 3})
    want("GET", "/counters/visits", 200, {"name": "visits", "value": 3})
    want("GET", "/counters/none", 404, missing)
    want("GET", "/", 404, missing)
    want("POST", "/counters", 404, missing)
    want("POST", "/counters/visits", 200, {"name": "visits", "value": 4})
    want("POST", "/counters/new", 200, {"name": "new", "value": 1})
    if json.load(open("counters.json")) != {"visits": 4, "new": 1}:
        raise SystemExit("counters.json has: " + open("counters.json").read())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        values = sorted(r[1]["value"] for r in pool.map(lambda _: ask("POST", "/counters/many"), range(60)))
    if values != list(range(1, 61)):
        raise SystemExit("of 60 requests at once some are lost")
    idle = socket.create_connection(("127.0.0.1", port))
    want("GET", "/counters/many", 200, {"name": "many", "value": 60})
    idle.close()
finally:
    p.kill()
    p.wait()
os.remove("counters.json")
p = start()
try:
    want("GET", "/counters", 200, {})
    want("POST", "/counters/a", 200, {"name": "a", "value": 1})
finally:
    p.kill()
    p.wait()
END
