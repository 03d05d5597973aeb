"""What needs no server."""

import base64

import pytest

from skete import _core, errors


def test_events_are_the_same_however_the_stream_is_cut() -> None:
    stream = b": alive\r\n\r\nid: 1\r\nevent: a\r\ndata: {\r\ndata: }\r\n\r\nid: 2\n\ndata:x\n\nid: 3\ndata: cut"
    want = [("1", "a", b"{\n}"), ("2", "", b"x")]
    for size in range(1, len(stream) + 1):
        reader = _core.EventReader()
        got = [e for i in range(0, len(stream), size) for e in reader.feed(stream[i : i + size])]
        assert got == want, size


def test_an_event_has_a_bound() -> None:
    reader = _core.EventReader()
    with pytest.raises(errors.InternalError):
        for _ in range(_core.EVENT_BYTES_MAX // 1000 + 2):
            reader.feed(b"x" * 1000)


def output(offset: int, data: bytes) -> dict[str, object]:
    return {"offset": offset, "data": base64.b64encode(data).decode()}


def test_output_that_comes_again_is_taken_once_and_what_is_missing_is_told() -> None:
    place = _core.Place(0, 0)
    got = place.take("stdout", output(0, b"abc")) + place.take("stdout", output(1, b"bcd")) + place.take("stdout", output(6, b"g"))
    got += place.take("gap", {"stream": "stderr", "from": 0, "to": 9}) + place.take("stderr", output(9, b"x"))
    assert got == [
        _core.Output("stdout", 0, b"abc"), _core.Output("stdout", 3, b"d"),
        _core.Output("stdout", 4, b"", 2), _core.Output("stdout", 6, b"g"),
        _core.Output("stderr", 0, b"", 9), _core.Output("stderr", 9, b"x"),
    ]


def test_output_from_the_present_end() -> None:
    place = _core.Place(-1, 0)
    place.take("started", {"process": {"stdout": {"size": 100}, "stderr": {"size": 5}}})
    assert place.take("stdout", output(100, b"x")) == [_core.Output("stdout", 100, b"x")]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@host", "unix://rel/x.sock", "http://h?x=1", "host:7733"])
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(errors.InvalidError) as e:
        _core.Config.of(url, None, 1)
    assert e.value.hint


def test_the_environment_says_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKETE_URL", raising=False)
    monkeypatch.setenv("SKETE_HOME", "/srv/x")
    assert _core.Config.of(None, None, 1).socket == "/srv/x/skete.sock"
    monkeypatch.setenv("SKETE_URL", "https://host/")
    monkeypatch.setenv("SKETE_KEY", "e2b_1")
    c = _core.Config.of(None, None, 1)
    assert (c.base, c.socket, c.headers["Authorization"]) == ("https://host", "", "Bearer e2b_1")


def test_queries_and_paths_carry_any_bytes() -> None:
    assert _core.query_of({"path": "a b/\udcff", "no": None, "off": False, "on": True, "metadata": {"k": "v&"}}) == \
        "path=a%20b/%FF&on=true&metadata=k%3Dv%26"
    assert _core.named("path", "x\udcff") == {"path": "x\ufffd", "path_bytes": base64.b64encode(b"x\xff").decode()}


@pytest.mark.parametrize(("status", "body", "kind", "text", "hint"), [
    (404, b'{"status":404,"title":"Not Found","detail":"no x","class":"not_found","hint":"look"}', errors.NotFoundError, "no x", "look"),
    (422, b'{"status":422,"title":"t","detail":"validation failed","errors":[{"location":"body.cpus","message":"too many"}]}',
     errors.InvalidError, "cpus: too many", ""),
    (502, b"<html>", errors.UnavailableError, "Bad Gateway", ""),
    (401, b"", errors.DeniedError, "Bad Gateway", ""),
    (418, b"[]", errors.InvalidError, "Bad Gateway", ""),
    (599, b"{}", errors.InternalError, "the server refused without a reason", ""),
])
def test_errors(status: int, body: bytes, kind: type, text: str, hint: str) -> None:
    e = errors.of_answer(status, body, "99", "Bad Gateway")
    assert (type(e), e.args[0], e.hint, e.status, e.retry_after) == (kind, text, hint, status, 10.0)
