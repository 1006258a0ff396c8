"""Calls of models that a web process forwards to the playground's own process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvicorn
from django.core import signing
from django.urls import reverse

from apps.playground import forwarding
from apps.playground.forwarding import (
    CALL_ROUTES,
    SIGNATURE_HEADER,
    ForwardedCalls,
    PlaygroundAddress,
    PlaygroundForwarder,
    is_call,
    read_forwarded,
    sign,
)

PATH = "/prompts/invoke_prompt"


@pytest.fixture
def shared_connection() -> None:
    """No test here uses the database."""


def make_scope(path: str = PATH, *headers: tuple[bytes, bytes], **fields: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "https",
        "client": ("198.51.100.7", 4711),
        "headers": [(b"host", b"slipway.example"), *headers],
        **fields,
    }


class Exchange:
    """A client: what it sends, and what it has received."""

    def __init__(self, *pieces: bytes) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for index, piece in enumerate(pieces):
            more = index < len(pieces) - 1
            message = {"type": "http.request", "body": piece, "more_body": more}
            self._messages.put_nowait(message)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.is_complete = False

    def disconnect(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self._messages.get()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.pieces += [message["body"]] if message["body"] else []
            self.is_complete = not message.get("more_body", False)

    def json(self) -> Any:
        return json.loads(b"".join(self.pieces))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what arrived."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    answer = {
        "body": body.decode(),
        "client": scope["client"],
        "scheme": scope["scheme"],
        "headers": headers,
        "query": scope["query_string"].decode(),
    }
    head = [(b"content-type", b"application/json"), (b"x-request-id", b"42")]
    await send({"type": "http.response.start", "status": 201, "headers": head})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@contextlib.asynccontextmanager
async def serve(path: Path, calls: Any) -> AsyncIterator[PlaygroundForwarder]:
    """A playground process that listens at `path`; yields the web process's side."""
    ignore: Callable[[], None] = lambda: None  # noqa: E731
    process = ForwardedCalls(calls, on_startup=ignore, on_shutdown=ignore)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        config = uvicorn.Config(process, lifespan="off", log_config=None)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listener])
        yield PlaygroundForwarder(PlaygroundAddress(path), refuse)
        server.force_exit = True
        await server.shutdown([listener])


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize("name", CALL_ROUTES)
def test_routes_that_call_models_are_forwarded(name):
    is_page = name.startswith("playground-")
    path = reverse(name, args=[uuid4()] if is_page else [])

    assert is_call(make_scope(path))
    assert is_call(make_scope(f"{path}/"))
    assert is_page or is_call(make_scope(f"/api/v1{path}"))


@pytest.mark.parametrize(
    "scope",
    [
        make_scope(method="OPTIONS"),
        make_scope(method="GET"),
        make_scope("/runs"),
        make_scope("/generate/more"),
        make_scope(f"/o/{uuid4()}/playground/draft"),
        make_scope(f"/agents/x{PATH}"),
        {**make_scope(), "type": "websocket"},
    ],
)
def test_other_requests_stay_in_the_web_process(scope):
    assert not is_call(scope)


async def test_forwarded_request_arrives_as_it_was_sent(tmp_path):
    client = Exchange(b'{"a":', b" 1}")
    forged = (SIGNATURE_HEADER, b"forged")
    scope = make_scope(
        PATH,
        (b"x-api-key", b"key"),
        (b"connection", b"keep-alive"),
        forged,
        query_string=b"x=%20y",
    )

    async with serve(tmp_path / "s", echo) as forward:
        await forward(scope, client.receive, client.send)

    answer = client.json()
    assert (client.status, client.is_complete) == (201, True)
    assert client.headers[b"x-request-id"] == b"42"
    assert answer["body"] == '{"a": 1}'
    assert answer["query"] == "x=%20y"
    assert (answer["client"], answer["scheme"]) == (["198.51.100.7", 0], "https")
    assert answer["headers"]["x-api-key"] == "key"
    assert answer["headers"]["host"] == "slipway.example"
    assert SIGNATURE_HEADER.decode() not in answer["headers"]


async def test_other_paths_are_served_by_the_web_process(tmp_path):
    client = Exchange(b"")

    async with serve(tmp_path / "s", echo) as forward:
        await forward(make_scope("/runs"), client.receive, client.send)

    assert client.status == 418


async def test_pieces_of_a_stream_arrive_as_they_are_sent(tmp_path):
    client, more = Exchange(b"{}"), asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await more.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with serve(tmp_path / "s", stream) as forward:
        call = asyncio.create_task(forward(make_scope(), client.receive, client.send))
        async with asyncio.timeout(20):
            while client.pieces != [b"one"]:
                await asyncio.sleep(0.01)
        more.set()
        await call

    assert client.pieces == [b"one", b"two"]
    assert client.is_complete


async def test_call_ends_when_its_client_leaves(tmp_path):
    client, has_left = Exchange(b"{}"), asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left.set()

    async with serve(tmp_path / "s", wait) as forward:
        call = asyncio.create_task(forward(make_scope(), client.receive, client.send))
        await asyncio.sleep(0.1)
        client.disconnect()
        async with asyncio.timeout(20):
            await call
            await has_left.wait()

    assert client.status == 0


async def test_missing_process_is_503(tmp_path):
    client = Exchange(b"{}")
    forward = PlaygroundForwarder(PlaygroundAddress(tmp_path / "none"), refuse)

    await forward(make_scope(), client.receive, client.send)

    assert client.status == 503
    assert client.json()["code"] == "unavailable"
    assert client.headers[b"retry-after"] == b"1"


async def test_process_that_dies_before_it_answers_is_503(tmp_path):
    client = Exchange(b"{}")

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_unix_server(die, tmp_path / "s")
    async with server:
        forward = PlaygroundForwarder(PlaygroundAddress(tmp_path / "s"), refuse)
        await forward(make_scope(), client.receive, client.send)

    assert client.status == 503


async def test_stream_that_is_cut_is_not_completed(tmp_path):
    client = Exchange(b"{}")

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(cut, tmp_path / "s")
    async with server:
        forward = PlaygroundForwarder(PlaygroundAddress(tmp_path / "s"), refuse)
        await forward(make_scope(), client.receive, client.send)

    assert client.pieces == [b"one"]
    assert not client.is_complete


@pytest.mark.parametrize("signature", [None, b"made up", b"of another path", b"old"])
async def test_only_a_web_process_is_served(signature, monkeypatch):
    client = Exchange(b"{}")
    process = ForwardedCalls(echo, on_startup=print, on_shutdown=print)
    if signature == b"of another path":
        signature = sign(make_scope("/generate"))
    elif signature == b"old":
        signature = sign(make_scope())
        monkeypatch.setattr(forwarding, "_MAX_AGE_SECONDS", -1)
    headers = [] if signature is None else [(SIGNATURE_HEADER, signature)]

    await process(make_scope(PATH, *headers), client.receive, client.send)

    assert client.status == 404


async def test_process_serves_nothing_but_calls():
    client = Exchange(b"{}")
    process = ForwardedCalls(echo, on_startup=print, on_shutdown=print)
    scope = make_scope("/runs")
    signed = {**scope, "headers": [*scope["headers"], (SIGNATURE_HEADER, sign(scope))]}

    await process(signed, client.receive, client.send)

    assert client.status == 404


def test_signature_needs_the_key_of_the_installation(settings):
    signature = sign(make_scope())
    settings.SECRET_KEY = "another"

    assert read_forwarded(make_scope(PATH, (SIGNATURE_HEADER, signature))) is None
    with pytest.raises(signing.BadSignature):
        signing.loads(signature.decode(), salt="apps.playground.forwarding")


def test_address_is_a_socket_or_a_url(tmp_path):
    path = tmp_path / "s"

    assert PlaygroundAddress.parse(None, path) == PlaygroundAddress(path)
    assert PlaygroundAddress.parse("http://playground:8000", path) == PlaygroundAddress(
        None, "playground", 8000
    )
    with pytest.raises(ValueError, match="http address"):
        PlaygroundAddress.parse("https://playground", path)
