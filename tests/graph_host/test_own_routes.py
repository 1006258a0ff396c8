"""Custom routes of a project and loopback calls of its graphs, at the level of frames."""

from __future__ import annotations

import json

import pytest

from tests.graph_host.conftest import Host

GRAPH = """
from langgraph.graph import START, StateGraph
from langgraph_sdk import get_client
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    thread: dict

async def fetch_thread(state):
    return {"thread": await get_client().threads.get("00000000-0000-0000-0000-000000000007")}

graph = StateGraph(State).add_node("fetch", fetch_thread).add_edge(START, "fetch").compile()
"""
APP = """
import contextlib
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

@contextlib.asynccontextmanager
async def lifespan(app):
    yield {"word": "ready"}

async def hello(request):
    body = await request.body()
    return PlainTextResponse(f"{request.state.word} {request.url.path} {len(body)}")

async def large(request):
    return Response(b"x" * 1_000_000)

async def crash(request):
    raise RuntimeError("no")

async def socket(websocket):
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()

app = Starlette(routes=[
    Route("/hello/{name:str}", hello, methods=["POST"]), Route("/large", large),
    Route("/crash", crash), WebSocketRoute("/socket", socket),
    Mount("/files", app=PlainTextResponse("file")),
], lifespan=lifespan)
"""
FAILING = """
import contextlib
from starlette.applications import Starlette

@contextlib.asynccontextmanager
async def lifespan(app):
    raise RuntimeError("no database")
    yield

app = Starlette(lifespan=lifespan)
"""


@pytest.fixture(scope="module")
def app_host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app_host")
    config = {
        "dependencies": ["."],
        "graphs": {"agent": "./agent.py:graph"},
        "http": {"app": "./app.py:app"},
    }
    files = {"agent.py": GRAPH, "app.py": APP, "langgraph.json": json.dumps(config)}
    for name, text in files.items():
        (folder / name).write_text(text)
    host = Host(folder)
    yield host
    host.close()


KEYS = iter(range(1000, 2000))


def open_exchange(host, path, kind="http", method="GET", **fields):
    key = next(KEYS)
    scope = {
        "kind": kind, "method": method, "scheme": "http", "path": path, "raw_path": path,
        "root_path": "", "query": "", "headers": [["host", "h"]], "server": ["h", 80],
        "client": [], "subprotocols": [], "user": None, **fields,
    }  # fmt: skip
    host.send("web", key, {"type": "open", **scope})
    return key


def read_response(host, key):
    """Grant credit for each message; return status, body and the reason of the end."""
    status, body = None, b""
    while True:
        kind, message_key, _, *rest = host.next("web", "over")
        if message_key < key:  # a late message of an earlier exchange
            continue
        assert message_key == key
        if kind == "over":
            return status, body, rest[0]
        message = rest[0]
        status = message.get("status", status)
        body += message.get("body") or b""
        host.send("more", key, len(message.get("body") or b"") + 64)


def test_the_hello_frame_lists_the_custom_routes(app_host):
    assert app_host.hello["http"] == {
        "routes": [
            ["/hello/{name:str}", "http", ["POST"]],
            ["/large", "http", ["GET", "HEAD"]],
            ["/crash", "http", ["GET", "HEAD"]],
            ["/socket", "websocket", []],
            ["/files", "mount", []],
        ],
        "has_middleware": False,
        "openapi": None,
    }


def test_a_custom_route_answers_a_request_in_two_parts(app_host):
    key = open_exchange(app_host, "/hello/ann", method="POST")
    app_host.send("web", key, {"type": "http.request", "body": b"123", "more_body": True})
    app_host.send("web", key, {"type": "http.request", "body": b"45", "more_body": False})

    assert read_response(app_host, key) == (200, b"ready /hello/ann 5", None)


def test_a_large_body_waits_for_more_credit(app_host):
    key = open_exchange(app_host, "/large")
    app_host.send("web", key, {"type": "http.request", "body": b"", "more_body": False})
    sent = []
    while sum(sent) < 256 * 1024:
        _, _, _, message = app_host.next("web")
        sent.append(len(message.get("body") or b"") + 64)

    app_host.send("call", 1, "agent", "schemas", b"{}")
    frame = app_host.next("web", "result")
    assert frame[0] == "result"  # what comes next is not more of the body
    app_host.send("more", key, sum(sent))
    status, body, _ = read_response(app_host, key)

    assert status is None
    assert len(body) + sum(sent) - 64 * len(sent) == 1_000_000


def test_a_crashed_handler_ends_the_exchange_with_status_500(app_host):
    key = open_exchange(app_host, "/crash")
    app_host.send("web", key, {"type": "http.request", "body": b"", "more_body": False})

    status, _, reason = read_response(app_host, key)

    assert (status, reason) == (500, "RuntimeError")


def test_a_custom_websocket_accepts_echoes_and_closes(app_host):
    key = open_exchange(app_host, "/socket", kind="websocket")
    app_host.send("web", key, {"type": "websocket.connect"})
    app_host.send("web", key, {"type": "websocket.receive", "text": "hi"})

    messages = [app_host.next("web")[3] for _ in range(3)]

    assert [message["type"] for message in messages] == [
        "websocket.accept", "websocket.send", "websocket.close",
    ]  # fmt: skip
    assert messages[1]["text"] == "hi"


def test_a_graph_calls_its_server_over_the_socket(app_host):
    start = {
        "run_id": "00000000-0000-0000-0000-000000000001",
        "trace_id": "00000000-0000-0000-0000-000000000001", "attempt": 1, "metadata": {},
        "thread_id": "00000000-0000-0000-0000-000000000002", "graph_id": "agent",
        "assistant_id": "00000000-0000-0000-0000-000000000003", "head": None,
        "kwargs": b'{"input": {}}',
    }  # fmt: skip
    app_host.send("start", 77, start)
    _, key, number, kind, loopback_request = app_host.next("loop")
    headers = [[b"content-type", b"application/json"]]
    response_start = {"type": "http.response.start", "status": 200, "headers": headers}
    app_host.send("loop", number, "web", response_start)
    app_host.send("loop", number, "web", {"type": "http.response.body", "body": b'{"a": 1}'})

    done = app_host.next("done")[3]

    assert (key, kind, loopback_request["method"]) == (0, "open", "GET")
    assert loopback_request["path"] == b"/threads/00000000-0000-0000-0000-000000000007"
    assert json.loads(done["values"]) == {"thread": {"a": 1}}


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (FAILING, "The start-up of `http.app` failed"),
        ("app = 3", "`http.app` is a int; it must be an ASGI application"),
    ],
)
def test_an_application_that_does_not_start_is_reported_as_a_problem(host, app, message):
    failed_host = host(
        {"agent.py": GRAPH, "app.py": app},
        graphs={"agent": "./agent.py:graph"},
        http={"app": "./app.py:app"},
    )

    assert message in failed_host.hello["problem"]


def test_an_application_without_a_route_list_reports_none(host):
    plain = "async def app(scope, receive, send):\n    assert scope['type'] == 'http'"

    plain_host = host(
        {"agent.py": GRAPH, "app.py": plain},
        graphs={"agent": "./agent.py:graph"},
        http={"app": "./app.py:app"},
    )

    assert plain_host.hello["http"] == {
        "routes": None,
        "has_middleware": False,
        "openapi": None,
    }
    assert "problem" not in plain_host.hello


def test_serde_settings_are_applied_and_unknown_ones_reported(host):
    configured = host(
        {"agent.py": GRAPH},
        graphs={"agent": "./agent.py:graph"},
        checkpointer={"serde": {"pickle_fallback": True, "allowed_json_modules": [["a", "B"]]}},
    )
    unsupported = host(
        {"agent.py": GRAPH},
        graphs={"agent": "./agent.py:graph"},
        checkpointer={"serde": {"unheard_of": True}},
    )

    assert "problem" not in configured.hello
    assert "`checkpointer.serde.unheard_of` is not supported" in unsupported.hello["problem"]
