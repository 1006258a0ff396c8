import asyncio
import json

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from apps.core import errors
from apps.core.http import body_memory
from apps.core.http.body_reader import read_body
from apps.core.http.loop_response import LoopResponse
from apps.core.http.wsgi_bridge import WSGIBridge, build_environ

# Closing a Django response checks the database connections of its thread.
pytestmark = pytest.mark.django_db


def make_scope(path="/x", method="GET", headers=(), query=b"", **extra):
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


def call_bridge(application, asgi_scope, *messages):
    """Return the ASGI messages that the bridge sends."""
    incoming, sent = list(messages), []

    async def receive():
        if not incoming:
            await asyncio.Event().wait()  # the connection stays open
        return incoming.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(WSGIBridge(application)(asgi_scope, receive, send))
    return sent


def make_body_message(chunk, *, more=False):
    return {"type": "http.request", "body": chunk, "more_body": more}


def echo(environ, start_response):
    response = HttpResponse(environ["wsgi.input"].read(), status=201)
    start_response("201 Created", [("X-Seen", environ.get("HTTP_X_ONE", "-"))])
    return response


def test_chunked_body_is_reassembled():
    sent = call_bridge(
        echo,
        make_scope(method="POST", headers=[("transfer-encoding", "chunked")]),
        make_body_message(b"ab", more=True),
        make_body_message(b"cd"),
    )

    assert sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x-seen", b"-")]},
        {"type": "http.response.body", "body": b"abcd"},
    ]


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        ([("content-length", "2000")], []),
        ([("transfer-encoding", "chunked")], [make_body_message(b"x" * 600, more=True)] * 2),
    ],
)
def test_oversized_body_is_refused_before_it_is_read(settings, headers, chunks):
    settings.MAX_BODY_BYTES = 1000

    sent = call_bridge(echo, make_scope(method="POST", headers=headers), *chunks)

    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"]) == {
        "detail": "The request body exceeds 1000 bytes.",
        "code": "too_large",
        "errors": [],
    }


def test_client_disconnect_during_the_body_skips_the_view():
    called = []

    sent = call_bridge(
        lambda *_: called.append(1),
        make_scope(method="POST", headers=[("content-length", "4")]),
        {"type": "http.disconnect"},
    )

    assert (called, sent) == ([], [])


def test_streaming_response_is_sent_in_chunks_and_closed():
    closed = []

    def stream(environ, start_response):
        start_response("200 OK", [])
        response = StreamingHttpResponse(iter([b"a" * 262_144, b"b", b"c"]))
        response.close = lambda: closed.append(1)
        return response

    sent = call_bridge(stream, make_scope())

    assert [message.get("body") for message in sent[1:]] == [b"a" * 262_144, b"bc"]
    assert closed == [1]


def test_header_with_underscore_is_dropped():
    sent = call_bridge(
        echo,
        make_scope(headers=[("x_one", "forged"), ("x-one", "true"), ("x-one", "twice")]),
    )

    assert sent[0]["headers"] == [(b"x-seen", b"true,twice")]


def test_environ_has_path_query_and_client():
    environ = build_environ(
        make_scope("/caf%C3%A9", query=b"a=%20b"),
        asyncio.run(read_body(make_scope(), None)),
    )

    assert environ["PATH_INFO"] == "/caf\xc3\xa9"
    assert environ["QUERY_STRING"] == "a=%20b"
    assert environ["REMOTE_ADDR"] == "10.0.0.9"


@pytest.fixture
def nearly_full_memory(settings):
    settings.BODY_MEMORY_BYTES = 1000
    with body_memory.body_memory_budget.reserve() as others:
        others.add(700)
        yield others
    assert body_memory.body_memory_budget.used == 0


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        ([("content-length", "400")], [make_body_message(b"x" * 200, more=True)] * 2),
        ([("transfer-encoding", "chunked")], [make_body_message(b"x" * 200, more=True)] * 2),
    ],
)
def test_body_beyond_the_memory_budget_is_unavailable(nearly_full_memory, headers, chunks):
    called = []

    sent = call_bridge(
        lambda *_: called.append(1), make_scope(method="POST", headers=headers), *chunks
    )

    assert sent[0]["status"] == 503
    assert (b"retry-after", b"1") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])["code"] == "busy"
    assert called == []
    assert body_memory.body_memory_budget.used == nearly_full_memory.size


def test_reservation_is_released_after_the_request(nearly_full_memory):
    used_bytes = []

    def record_used_bytes(environ, start_response):
        used_bytes.append(body_memory.body_memory_budget.used)
        return echo(environ, start_response)

    sent = call_bridge(
        record_used_bytes,
        make_scope(method="POST", headers=[("content-length", "200")]),
        make_body_message(b"x" * 200),
    )

    assert (sent[0]["status"], used_bytes) == (201, [900])
    assert body_memory.body_memory_budget.used == 700


def respond_with(stream):
    """An application whose response the event loop produces."""

    def application(environ, start_response):
        headers = [("Content-Type", "text/event-stream"), ("X-Request-ID", "r1")]
        start_response("200 OK", headers)
        return LoopResponse(stream())

    return application


def test_loop_response_is_sent_piece_by_piece_from_the_event_loop():
    loops = []

    async def stream():
        for piece in (b"one", b"two"):
            loops.append(asyncio.get_running_loop())
            yield piece

    sent = call_bridge(respond_with(stream), make_scope(), make_body_message(b""))

    assert [message.get("body") for message in sent] == [None, b"one", b"two", b""]
    assert [message.get("more_body", False) for message in sent] == [False, True, True, False]
    assert sent[0]["status"] == 200
    assert len(loops) == 2


@pytest.mark.parametrize(
    ("error", "status"), [(errors.RateLimited("Busy."), 429), (OSError(), 500)]
)
def test_error_before_the_first_piece_is_the_response(error, status):
    async def stream():
        raise error
        yield b""

    sent = call_bridge(respond_with(stream), make_scope(), make_body_message(b""))

    assert sent[0]["status"] == status
    assert dict(sent[0]["headers"]) == {
        b"x-request-id": b"r1",
        b"content-type": b"application/json",
    }
    assert json.loads(sent[1]["body"])["code"] == ("rate_limited" if status == 429 else "error")


def test_reader_that_leaves_cancels_the_stream_where_it_waits():
    ends = []

    async def stream():
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("closed")

    sent = call_bridge(
        respond_with(stream), make_scope(), make_body_message(b""), {"type": "http.disconnect"}
    )

    assert ends == ["closed"]
    assert [message.get("body") for message in sent] in ([], [None, b"one"])


def test_head_of_a_loop_response_has_its_status_and_no_content():
    async def stream():
        yield b"one"

    sent = call_bridge(respond_with(stream), make_scope(method="HEAD"), make_body_message(b""))

    assert [message.get("body") for message in sent] == [None, b""]
    assert sent[0]["status"] == 200
