"""Custom events of graphs as log messages to MCP clients."""

from __future__ import annotations

from typing import Any

import pytest

from apps.agent_server.mcp import log_messages
from tests.agent_server.asgi import Caller
from tests.agent_server.test_mcp import META, begin_session, request, stateless

EVENTS = [
    ("custom", {"level": "debug", "data": "details"}),
    ("custom", {"level": "warning", "logger": "search", "data": {"rows": 0}}),
    ("custom", {"progress": 0.5}),
    ("custom", "a text"),
    ("custom", {"level": "loud", "data": 1}),
]
WARNING = {"level": "warning", "logger": "search", "data": {"rows": 0}}


async def begin(call: Caller, level: str | None = None) -> dict[str, str]:
    """Begin a session and set its level."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    answer = await call("POST", "/mcp", request("initialize", params))
    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    if level is not None:
        body = request("logging/setLevel", {"level": level})
        answer = await call("POST", "/mcp", body, **session)
        assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    return session


async def run(call: Caller, worker: Any, body: Any, headers: dict[str, str]) -> Any:
    """Make a call whose run writes the custom events; return the run and the response."""
    async with call.open("POST", "/mcp", body, **headers) as client:
        row = await worker.claim_run()
        await worker.publish(row, ("metadata", {}), *EVENTS)
        await worker.end(row, result={"a": 1})
        return row, await client.wait_for_end()


def logged(answer: Any) -> list[Any]:
    return [
        frame["params"]
        for _, frame, _ in answer.events
        if frame.get("method") == "notifications/message"
    ]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("warning", [WARNING]),
        ("emergency", []),
        (
            "info",
            [
                WARNING,
                {"level": "info", "data": {"progress": 0.5}},
                {"level": "info", "data": "a text"},
                {"level": "info", "data": {"level": "loud", "data": 1}},
            ],
        ),
    ],
)
async def test_a_session_gets_the_messages_of_its_level(call, worker, level, expected):
    session = await begin(call, level)

    row, answer = await run(call, worker, request("tools/call", {"name": "agent"}), session)

    assert "custom" in row.kwargs["stream_mode"]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert logged(answer) == expected
    assert answer.events[-1][1]["result"]["structuredContent"] == {"a": 1}


async def test_the_last_level_of_a_session_counts_for_it_alone(call, worker):
    session, other = await begin(call, "debug"), await begin(call)
    await call("POST", "/mcp", request("logging/setLevel", {"level": "alert"}), **session)
    body = request("tools/call", {"name": "agent"})

    _, answer = await run(call, worker, body, session)
    _, of_another = await run(call, worker, body, other)

    assert logged(answer) == []
    assert of_another.json()["result"]["structuredContent"] == {"a": 1}


async def test_a_stateless_request_names_its_level(call, worker):
    body, headers = stateless("tools/call", name="agent")
    _, silent = await run(call, worker, body, headers)
    body["params"]["_meta"][f"{META}logLevel"] = "warning"
    _, answer = await run(call, worker, body, headers)

    assert silent.json()["result"]["structuredContent"] == {"a": 1}
    assert logged(answer) == [WARNING]
    assert answer.events[-1][1]["result"]["resultType"] == "complete"


async def test_messages_of_a_call_are_limited(call, worker, monkeypatch):
    monkeypatch.setattr(log_messages, "MAX_MESSAGES", 2)
    session = await begin(call, "debug")

    _, answer = await run(call, worker, request("tools/call", {"name": "agent"}), session)

    assert [message["level"] for message in logged(answer)] == ["debug", "warning"]


@pytest.mark.parametrize("level", ["loud", "INFO", 7, None, ["info"]])
def test_unknown_levels_are_refused(post, level):
    session = {"Mcp-Session-Id": begin_session(post)}
    body, headers = stateless("tools/call", name="agent")
    body["params"]["_meta"][f"{META}logLevel"] = level

    of_session = post(request("logging/setLevel", {"level": level}), **session)

    assert of_session.json()["error"]["code"] == -32602
    if level is not None:
        assert post(body, **headers).json()["error"]["code"] == -32602


def test_a_level_needs_a_session_and_no_stateless_client_sets_one(post):
    body, headers = stateless("logging/setLevel", level="info")

    without = post(request("logging/setLevel", {"level": "info"}))

    assert without.json()["error"]["code"] == -32600
    assert post(body, **headers).status_code == 404


@pytest.fixture
def post(send):
    return lambda body, **options: send("post", "/mcp", body, **options)
