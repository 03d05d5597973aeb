# A program that logs in without a library. It is told what to do over HTTP, and keeps its
# tokens in a file, as command lines do.
import base64
import http.server
import json
import sys
import urllib.parse
import urllib.request

ENDPOINT = "https://login.example.com/oauth/token"
FILE = "/workspace/tokens.json"


def ask(**form):
    request = urllib.request.Request(ENDPOINT, urllib.parse.urlencode(form).encode())
    request.add_header("Authorization", "Basic " + base64.b64encode(b"app:none").decode())
    with urllib.request.urlopen(request) as answer, open(FILE, "wb") as f:
        f.write(answer.read())
    return kept()["access_token"]


def kept():
    with open(FILE) as f:
        return json.load(f)


def do(what, url):
    if what == "login":
        return ask(grant_type="client_credentials")
    if what == "refresh":
        return ask(grant_type="refresh_token", refresh_token=kept()["refresh_token"])
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + kept()["access_token"]})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        what, _, url = self.path.lstrip("/").partition("?")
        try:
            text = do(what, urllib.parse.unquote(url))
        except Exception as e:
            text = f"exception: {e!r}"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Told).serve_forever()
