# A program that logs in by requests-oauthlib. It is told what to do over HTTP, and keeps its
# tokens in memory alone.
import http.server
import sys
import urllib.parse

from oauthlib.oauth2 import BackendApplicationClient
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

ENDPOINT = "https://login.example.com/oauth/token"
session = OAuth2Session(client=BackendApplicationClient(client_id="app"))
auth = HTTPBasicAuth("app", "none")


def do(what, url):
    if what == "login":
        return session.fetch_token(ENDPOINT, auth=auth)["access_token"]
    if what == "refresh":
        return session.refresh_token(ENDPOINT, auth=auth)["access_token"]
    return session.get(url).text


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
