#!/usr/bin/env python3
"""Serves a folder, and reloads open pages when a file in it changes.

    serve.py [FOLDER] [--port 8000]   until it is ended
    serve.py [FOLDER] --check         names what is wrong with the pages

--check: exit status 0 nothing, 1 something is wrong, 2 there are no pages.
"""
import argparse
import html.parser
import http.server
import os
import sys
import time
import urllib.parse

RELOAD = b"<script>new EventSource('/.live').onmessage = () => location.reload()</script>"
LOOK_SECONDS = 0.3
BEAT_SECONDS = 15
FILES_MAX = 5000


def stamp(folder):
    """What changes when a file of the folder does."""
    seen = []
    for top, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f != "node_modules"]
        for name in names:
            try:
                s = os.stat(os.path.join(top, name))
            except OSError:
                continue  # it went between list and look
            seen.append((top, name, s.st_mtime_ns, s.st_size))
            if len(seen) > FILES_MAX:
                return hash(tuple(sorted(seen)))
    return hash(tuple(sorted(seen)))


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/.live":
            return self.live()
        path = self.translate_path(self.path)
        if os.path.isdir(path) and urllib.parse.urlsplit(self.path).path.endswith("/"):
            path = os.path.join(path, "index.html")
        root = os.path.realpath(self.directory)
        if not os.path.realpath(path).startswith(root + os.sep) and os.path.realpath(path) != root:
            return self.send_error(404)  # a link that leads out
        if path.endswith((".html", ".htm")) and os.path.isfile(path):
            return self.page(path)
        return super().do_GET()

    def page(self, path):
        with open(path, "rb") as f:
            body = f.read() + RELOAD
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def live(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        was, beat = stamp(self.directory), time.monotonic()
        try:
            while True:
                time.sleep(LOOK_SECONDS)
                now = stamp(self.directory)
                if now != was:
                    was = now
                    self.wfile.write(b"data: changed\n\n")
                elif time.monotonic() - beat > BEAT_SECONDS:
                    beat = time.monotonic()
                    self.wfile.write(b": here\n\n")
                self.wfile.flush()
        except OSError:
            pass  # the page was closed

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, text, *args):
        if "/.live" not in (args[0] if args and isinstance(args[0], str) else ""):
            super().log_message(text, *args)


class Page(html.parser.HTMLParser):
    """What a page refers to, and what it lacks."""

    def __init__(self):
        super().__init__()
        self.refers, self.ids, self.wrong, self.has = [], set(), [], set()

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.has.add(tag)
        if a.get("id"):
            self.ids.add(a["id"])
        if tag == "html" and not a.get("lang"):
            self.wrong.append("html has no lang")
        if tag == "img" and "alt" not in a:
            self.wrong.append(f"the picture {a.get('src', '')} has no alt")
        for key in ("href", "src", "poster"):
            if not a.get(key):
                continue
            self.refers.append(a[key])
            to = urllib.parse.urlsplit(a[key])
            if tag != "a" and (to.netloc or to.scheme in ("http", "https")):
                self.wrong.append(f"{a[key]} is of another host: the page does not work without a network")


def check(folder):
    """What is wrong with the pages of a folder, as lines of text; None: there are no pages."""
    pages = {}
    for top, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f != "node_modules"]
        for name in names:
            if name.endswith((".html", ".htm")):
                path = os.path.join(top, name)
                pages[path] = p = Page()
                with open(path, encoding="utf-8", errors="replace") as f:
                    p.feed(f.read())
    if not pages:
        return None
    wrong = []
    for path, p in sorted(pages.items()):
        told = p.wrong + ([] if "title" in p.has else ["there is no title"]) + ([] if "html" in p.has else ["html has no lang"])
        for ref in p.refers:
            to = urllib.parse.urlsplit(ref)
            if to.scheme or to.netloc:
                continue
            target = urllib.parse.unquote(to.path)
            file = path if not target else os.path.join(folder, target.lstrip("/")) if target.startswith("/") else os.path.join(os.path.dirname(path), target)
            if os.path.isdir(file):
                file = os.path.join(file, "index.html")
            if not os.path.isfile(file):
                told.append(f"{ref} leads nowhere")
            elif to.fragment and os.path.normpath(file) in {os.path.normpath(x) for x in pages}:
                other = next(q for x, q in pages.items() if os.path.normpath(x) == os.path.normpath(file))
                if to.fragment not in other.ids:
                    told.append(f"{ref}: no element has that id")
        wrong += [f"{path}: {w}" for w in told]
    return wrong


def main(argv):
    p = argparse.ArgumentParser(description="Serves a folder with live reload.")
    p.add_argument("folder", nargs="?", default=".")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--check", action="store_true")
    args = p.parse_args(argv)
    if not os.path.isdir(args.folder):
        print(f"serve.py: {args.folder} is no folder", file=sys.stderr)
        return 2
    if args.check:
        wrong = check(args.folder)
        if wrong is None:
            print(f"serve.py: there are no pages in {args.folder}", file=sys.stderr)
            return 2
        print("\n".join(wrong) or "nothing is wrong")
        return 1 if wrong else 0
    handler = lambda *a, **k: Handler(*a, directory=args.folder, **k)
    http.server.ThreadingHTTPServer.daemon_threads = True
    with http.server.ThreadingHTTPServer(("127.0.0.1", args.port), handler) as server:
        print(f"serving {args.folder} at http://127.0.0.1:{server.server_address[1]}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
