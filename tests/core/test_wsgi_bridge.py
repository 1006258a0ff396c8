import asyncio
import json

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from apps.core.http import body_memory
from apps.core.http.wsgi_bridge import WSGIBridge, build_environ, read_body

# A Django answer that closes looks after its thread's connections, and the threads last.
pytestmark = pytest.mark.django_db


def scope(path="/x", method="GET", headers=(), query=b"", **extra):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "http_version": "1.1",
        "headers": [(n.encode(), v.encode()) for n, v in headers],
        "client": ("10.0.0.9", 4000),
        "server": ("slipway.example", 80),
        **extra,
    }


def call(application, scope, *messages):
    """The ASGI messages that the bridge sends back."""
    incoming, sent = list(messages), []

    async def receive():
        return incoming.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(WSGIBridge(application)(scope, receive, send))
    return sent


def body(chunk, *, more=False):
    return {"type": "http.request", "body": chunk, "more_body": more}


def echo(environ, start_response):
    response = HttpResponse(environ["wsgi.input"].read(), status=201)
    start_response("201 Created", [("X-Seen", environ.get("HTTP_X_ONE", "-"))])
    return response


def test_chunked_body_is_reassembled():
    sent = call(
        echo,
        scope(method="POST", headers=[("transfer-encoding", "chunked")]),
        body(b"ab", more=True),
        body(b"cd"),
    )

    assert sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x-seen", b"-")]},
        {"type": "http.response.body", "body": b"abcd"},
    ]


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        ([("content-length", "2000")], []),
        ([("transfer-encoding", "chunked")], [body(b"x" * 600, more=True)] * 2),
    ],
)
def test_oversized_body_is_refused_before_it_is_read(settings, headers, chunks):
    settings.MAX_BODY_BYTES = 1000

    sent = call(echo, scope(method="POST", headers=headers), *chunks)

    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"]) == {
        "detail": "The request body exceeds 1000 bytes.",
        "code": "too_large",
        "errors": [],
    }


def test_client_disconnect_during_the_body_skips_the_view():
    called = []

    sent = call(
        lambda *_: called.append(1),
        scope(method="POST", headers=[("content-length", "4")]),
        {"type": "http.disconnect"},
    )

    assert (called, sent) == ([], [])


def test_streaming_response_is_sent_in_chunks_and_closed():
    closed = []

    def stream(environ, start_response):
        start_response("200 OK", [])
        response = StreamingHttpResponse(iter([b"a", b"b"]))
        response.close = lambda: closed.append(1)
        return response

    sent = call(stream, scope())

    assert [message.get("body") for message in sent[1:]] == [b"a", b"b", b""]
    assert closed == [1]


def test_header_with_underscore_is_dropped():
    sent = call(
        echo,
        scope(headers=[("x_one", "forged"), ("x-one", "true"), ("x-one", "twice")]),
    )

    assert sent[0]["headers"] == [(b"x-seen", b"true,twice")]


def test_environ_has_path_query_and_client():
    environ = build_environ(
        scope("/caf%C3%A9", query=b"a=%20b"),
        asyncio.run(read_body(scope(), None)),
    )

    assert environ["PATH_INFO"] == "/caf\xc3\xa9"
    assert environ["QUERY_STRING"] == "a=%20b"
    assert environ["REMOTE_ADDR"] == "10.0.0.9"


@pytest.fixture
def small_room(settings):
    settings.BODY_MEMORY_BYTES = 1000
    with body_memory.body_memory_budget.reserve() as others:
        others.add(700)
        yield others
    assert body_memory.body_memory_budget.used == 0


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        ([("content-length", "400")], []),
        ([("transfer-encoding", "chunked")], [body(b"x" * 200, more=True)] * 2),
    ],
)
def test_body_beyond_the_memory_budget_is_unavailable(small_room, headers, chunks):
    called = []

    sent = call(lambda *_: called.append(1), scope(method="POST", headers=headers), *chunks)

    assert sent[0]["status"] == 503
    assert (b"retry-after", b"1") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])["code"] == "busy"
    assert called == []
    assert body_memory.body_memory_budget.used == small_room.size


def test_reservation_is_released_after_the_request(small_room):
    seen = []

    def look(environ, start_response):
        seen.append(body_memory.body_memory_budget.used)
        return echo(environ, start_response)

    sent = call(look, scope(method="POST", headers=[("content-length", "200")]), body(b"x" * 200))

    assert (sent[0]["status"], seen) == (201, [900])
    assert body_memory.body_memory_budget.used == 700
