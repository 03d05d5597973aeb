"""A page that shows a cart, at http://localhost:8080.

It reads cart.py anew for each request and is asked for each second, so that what an agent
changes, and what an undo brings back, is seen at once.
"""

import runpy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GOODS = [("pencil", 120, 3), ("paper", 450, 1)]
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="1">
<meta name="viewport" content="width=device-width">
<title>The shop</title>
<style>
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 24rem; margin: 3rem auto; padding: 0 1rem }}
table {{ width: 100%; border-collapse: collapse }}
td, th {{ border-bottom: 1px solid #8888; text-align: left; padding: .4rem 0 }}
td:last-child, th:last-child {{ text-align: right }}
</style>
<h1>Your cart</h1>
<table>
{rows}
<tr><th>Total<th>{total}
</table>
</html>
"""


def money(cents):
    return f"{cents / 100:.2f} €"


def page():
    cart = runpy.run_path(str(Path(__file__).with_name("cart.py")))["Cart"]()
    for name, cents, count in GOODS:
        cart.add(name, cents, count)
    rows = "\n".join(f"<tr><td>{count} × {name}, {money(cents)} each<td>{money(cents * count)}" for name, cents, count in GOODS)
    return PAGE.format(rows=rows, total=money(cart.total()))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = page().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass  # a request each second would fill the log


if __name__ == "__main__":
    ThreadingHTTPServer(("", 8080), Handler).serve_forever()
