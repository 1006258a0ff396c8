"""A project's own HTTP application, and its graphs' calls of their own server, frame by frame."""

from __future__ import annotations

import json

import pytest

from tests.graph_host.conftest import Host

GRAPH = """
from langgraph.graph import START, StateGraph
from langgraph_sdk import get_client
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    found: dict

async def ask(state):
    return {"found": await get_client().threads.get("00000000-0000-0000-0000-000000000007")}

graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
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
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
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


def opened(host, path, kind="http", method="GET", **more):
    key = next(KEYS)
    scope = {
        "kind": kind, "method": method, "scheme": "http", "path": path, "raw_path": path,
        "root_path": "", "query": "", "headers": [["host", "h"]], "server": ["h", 80],
        "client": [], "subprotocols": [], "user": None, **more,
    }  # fmt: skip
    host.send("web", key, {"type": "open", **scope})
    return key


def answer(host, key):
    """Status, body, and why it was over; with credit for all that came."""
    status, body = None, b""
    while True:
        kind, at, _, *rest = host.next("web", "over")
        if at < key:  # an earlier exchange may still have something to say
            continue
        assert at == key
        if kind == "over":
            return status, body, rest[0]
        message = rest[0]
        status = message.get("status", status)
        body += message.get("body") or b""
        host.send("more", key, len(message.get("body") or b"") + 64)


def test_the_host_says_which_routes_there_are(serving):
    assert serving.hello["http"] == {
        "routes": [
            ["/hello/{name:str}", "http", ["POST"]],
            ["/large", "http", ["GET", "HEAD"]],
            ["/crash", "http", ["GET", "HEAD"]],
            ["/socket", "websocket", []],
            ["/files", "mount", []],
        ],
        "has_middleware": False,
    }


def test_a_request_is_answered(serving):
    key = opened(serving, "/hello/ann", method="POST")
    serving.send("web", key, {"type": "http.request", "body": b"123", "more_body": True})
    serving.send("web", key, {"type": "http.request", "body": b"45", "more_body": False})

    assert answer(serving, key) == (200, b"ready /hello/ann 5", None)


def test_no_more_is_sent_than_was_agreed(serving):
    key = opened(serving, "/large")
    serving.send("web", key, {"type": "http.request", "body": b"", "more_body": False})
    sent = []
    while sum(sent) < 256 * 1024:
        _, _, _, message = serving.next("web")
        sent.append(len(message.get("body") or b"") + 64)

    serving.send("call", 1, "agent", "schemas", b"{}")
    frame = serving.next("web", "result")
    assert frame[0] == "result"  # what comes next is not more of the body
    serving.send("more", key, sum(sent))
    status, body, _ = answer(serving, key)

    assert status is None
    assert len(body) + sum(sent) - 64 * len(sent) == 1_000_000


def test_a_crash_breaks_the_exchange_off(serving):
    key = opened(serving, "/crash")
    serving.send("web", key, {"type": "http.request", "body": b"", "more_body": False})

    status, _, reason = answer(serving, key)

    assert (status, reason) == (500, "RuntimeError")


def test_a_websocket_is_held(serving):
    key = opened(serving, "/socket", kind="websocket")
    serving.send("web", key, {"type": "websocket.connect"})
    serving.send("web", key, {"type": "websocket.receive", "text": "hi"})

    said = [serving.next("web")[3] for _ in range(3)]

    assert [message["type"] for message in said] == [
        "websocket.accept", "websocket.send", "websocket.close",
    ]  # fmt: skip
    assert said[1]["text"] == "hi"


def test_a_graph_calls_its_server_over_the_socket(serving):
    start = {
        "run_id": "00000000-0000-0000-0000-000000000001", "attempt": 1, "metadata": {},
        "thread_id": "00000000-0000-0000-0000-000000000002", "graph_id": "agent",
        "assistant_id": "00000000-0000-0000-0000-000000000003", "head": None,
        "kwargs": b'{"input": {}}',
    }  # fmt: skip
    serving.send("start", 77, start)
    _, key, number, kind, asked = serving.next("loop")
    headers = [[b"content-type", b"application/json"]]
    begun = {"type": "http.response.start", "status": 200, "headers": headers}
    serving.send("loop", number, "web", begun)
    serving.send("loop", number, "web", {"type": "http.response.body", "body": b'{"a": 1}'})

    done = serving.next("done")[3]

    assert (key, kind, asked["method"]) == (0, "open", "GET")
    assert asked["path"] == b"/threads/00000000-0000-0000-0000-000000000007"
    assert json.loads(done["values"]) == {"found": {"a": 1}}


@pytest.mark.parametrize(
    ("app", "says"),
    [
        (FAILING, "The start-up of `http.app` failed"),
        ("app = 3", "`http.app` is a int; it must be an ASGI application"),
    ],
)
def test_what_does_not_start_is_a_problem(host, app, says):
    found = host(
        {"agent.py": GRAPH, "app.py": app},
        graphs={"agent": "./agent.py:graph"},
        http={"app": "./app.py:app"},
    )

    assert says in found.hello["problem"]


def test_an_application_without_routes_says_so(host):
    plain = "async def app(scope, receive, send):\n    assert scope['type'] == 'http'"

    found = host(
        {"agent.py": GRAPH, "app.py": plain},
        graphs={"agent": "./agent.py:graph"},
        http={"app": "./app.py:app"},
    )

    assert found.hello["http"] == {"routes": None, "has_middleware": False}
    assert "problem" not in found.hello


def test_the_serialiser_is_the_projects(host):
    found = host(
        {"agent.py": GRAPH},
        graphs={"agent": "./agent.py:graph"},
        checkpointer={"serde": {"pickle_fallback": True, "allowed_json_modules": [["a", "B"]]}},
    )
    odd = host(
        {"agent.py": GRAPH},
        graphs={"agent": "./agent.py:graph"},
        checkpointer={"serde": {"unheard_of": True}},
    )

    assert "problem" not in found.hello
    assert "`checkpointer.serde.unheard_of` is not supported" in odd.hello["problem"]
