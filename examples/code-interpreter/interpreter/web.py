"""As much of HTTP/1.1 as the interpreter needs: one request a connection, and answers
that stream.

    await serve(host, port, handle)     # handle(Request) answers by its methods
"""

import asyncio
import json

HEAD_MAX = 64 << 10
BODY_MAX = 32 << 20


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Gone(Exception):
    """The client does not listen any more."""


REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large", 500: "Internal Server Error"}


class Request:
    def __init__(self, reader, writer, method, path, body):
        self.reader, self.writer, self.method, self.path, self.body = reader, writer, method, path, body
        self.began = False

    def json(self):
        """The body, which is an object."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as e:
            raise Refused(400, f"the body is no JSON: {e}") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body is no JSON object")
        return value

    def head(self, status, kind, *more):
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", f"Content-Type: {kind}", "Connection: close", *more]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        self.began = True

    async def answer(self, status, value):
        text = isinstance(value, str)
        body = value.encode() if text else json.dumps(value).encode()
        self.head(status, "text/plain; charset=utf-8" if text else "application/json", f"Content-Length: {len(body)}")
        self.writer.write(body)
        await self.drain()

    async def line(self, value):
        """Sends a line of JSON, and waits until the client has taken most of what it is sent."""
        if not self.began:
            self.head(200, "application/x-ndjson", "Transfer-Encoding: chunked", "Cache-Control: no-store")
        data = json.dumps(value).encode() + b"\n"
        self.writer.write(b"%x\r\n" % len(data))
        self.writer.write(data)
        self.writer.write(b"\r\n")
        await self.drain()

    async def end(self):
        self.writer.write(b"0\r\n\r\n")
        await self.drain()

    async def drain(self):
        try:
            await self.writer.drain()
        except ConnectionError:
            raise Gone from None

    async def left(self):
        """Returns when the client has left."""
        try:
            while await self.reader.read(1 << 12):
                pass
        except ConnectionError:
            pass


async def read_chunks(reader):
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        if size < 0 or len(body) + size > BODY_MAX:
            raise Refused(413, f"a body has at most {BODY_MAX} bytes")
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():  # trailers
        pass
    return body


async def read_request(reader, writer):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "chunked" in headers.get("transfer-encoding", "").lower():
            body = await read_chunks(reader)
        else:
            size = int(headers.get("content-length", 0))
            if not 0 <= size <= BODY_MAX:
                raise Refused(413, f"a body has at most {BODY_MAX} bytes")
            body = await reader.readexactly(size)
    except (ValueError, asyncio.LimitOverrunError):
        raise Refused(400, "the request cannot be read") from None
    return Request(reader, writer, method, target.partition("?")[0], body)


async def respond(handle, reader, writer):
    """Answers the request of a connection."""
    request = Request(reader, writer, "", "", b"")
    try:
        request = await read_request(reader, writer)
        await handle(request)
    except Refused as e:
        if not request.began:
            await request.answer(e.status, str(e))
    except (Gone, asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(host, port, handle):
    async def connected(reader, writer):
        try:
            await respond(handle, reader, writer)
        except Gone:
            pass

    server = await asyncio.start_server(connected, host, port, limit=HEAD_MAX)
    async with server:
        await server.serve_forever()
