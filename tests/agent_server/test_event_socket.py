"""Access to the WebSocket of a thread's events."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from apps.agent_server.protocol.events import parse_name, to_stream_mode
from apps.agent_server.streaming.streams import Event, EventId
from config.asgi import application


async def open_socket(slug: str, **headers: str) -> list[dict[str, Any]]:
    """Connect and disconnect; return the messages that the server sent."""
    messages: list[dict[str, Any]] = []
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "websocket.connect"})
    incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    all_headers = {"host": "here.example", **headers}
    scope = {
        "type": "websocket",
        "path": f"/agents/{slug}/threads/{uuid4()}/stream/events",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
        "scheme": "ws",
        "subprotocols": [],
    }

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await asyncio.wait_for(application(scope, incoming.get, send), 30)
    return messages


async def test_key_opens_a_socket_from_any_origin(asgi_app, agent, key):
    headers = {"x-api-key": key, "origin": "https://elsewhere.example"}

    assert [message["type"] for message in await open_socket(agent.slug, **headers)] == [
        "websocket.accept"
    ]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "slip_wrong"}, 401),
        ({"cookie": "sessionid=x", "origin": "https://elsewhere.example"}, 403),
        ({"cookie": "sessionid=x", "origin": "https://here.example"}, 401),
    ],
)
async def test_rejected_connection_has_a_close_code(asgi_app, agent, headers, status):
    messages = await open_socket(agent.slug, **headers)

    assert [message["type"] for message in messages] == ["websocket.accept", "websocket.close"]
    assert messages[-1]["code"] == 4000 + status


async def test_agent_is_not_found_for_an_outsider(asgi_app, agent, outsider_key):
    messages = await open_socket(agent.slug, **{"x-api-key": outsider_key})

    assert messages[-1]["code"] == 4404


def test_event_name_of_a_channel_has_its_parts():
    assert parse_name(b"~messages:agent|research:1|search:2") == (
        "messages", "agent", ["research:1", "search:2"],
    )  # fmt: skip
    assert parse_name(b"~values") == ("values", "", [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"values|a:1", b"values|a:1"),
        (b"~values|a:1", b"values|a:1"),
        (b"~custom:seen", b"custom"),
        (b"~messages:agent", None),
        (b"~lifecycle|a:1", None),
    ],
)
def test_classic_readers_receive_only_events_they_know(name, expected):
    event = to_stream_mode(Event(EventId(1, 0), name, b"1"))

    assert (event and event.name) == expected
