"""Clients that do not read, or that send slowly, hold no thread and no memory of others."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from typing import Any

import pytest
import uvicorn
from django.http import FileResponse, HttpResponse
from uvicorn.server import ServerState

from apps.agent_server.endpoints.routes import ENDPOINTS
from apps.core import errors
from apps.core.http import body_memory, body_reader
from apps.core.http.body_memory import MemoryBudget, body_memory_budget, caller_share
from apps.core.http.wsgi_bridge import WSGIBridge
from config.web import HttpProtocol
from tests.agent_server.asgi import AsgiRequest

MB = 1_048_576
FILE = bytes(8 * MB)


def build_scope(method: str = "GET", path: str = "/x", **headers: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
    }


def serve_file_or_text(environ: dict[str, Any], start_response: Any) -> HttpResponse | FileResponse:
    start_response("200 OK", [])
    if environ["PATH_INFO"] == "/file":
        return FileResponse(io.BytesIO(FILE))
    return HttpResponse(b"ready")


class Client:
    """One request whose client receives only `reads` messages and sends the given body messages."""

    def __init__(self, scope: dict[str, Any], *body: bytes, reads: float = float("inf")) -> None:
        self.scope, self.reads = scope, reads
        self.sent: list[dict[str, Any]] = []
        self.has_left = asyncio.Event()
        self._body = list(body)
        self.receive_count = 0

    async def receive(self) -> dict[str, Any]:
        self.receive_count += 1
        if self._body:
            return {"type": "http.request", "body": self._body.pop(0), "more_body": True}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if len(self.sent) >= self.reads:
            await self.has_left.wait()
        self.sent.append(message)

    async def call(self, bridge: Any) -> None:
        await bridge(self.scope, self.receive, self.send)

    @property
    def error(self) -> tuple[int, str]:
        return self.sent[0]["status"], json.loads(self.sent[1]["body"])["code"]


@pytest.mark.django_db
def test_unread_files_hold_no_thread() -> None:
    """40 clients request a file and read nothing: a further request is answered."""

    async def attack() -> list[dict[str, Any]]:
        bridge = WSGIBridge(serve_file_or_text)
        clients = [Client(build_scope(path="/file"), reads=2) for _ in range(40)]
        tasks = [asyncio.create_task(client.call(bridge)) for client in clients]
        while not all(len(client.sent) == 2 for client in clients):
            await asyncio.sleep(0.01)
        other = Client(build_scope(path="/readyz"))
        await asyncio.wait_for(other.call(bridge), 60)
        for client in clients:
            client.has_left.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        return other.sent

    assert asyncio.run(attack())[1]["body"] == b"ready"


@pytest.mark.django_db
def test_file_is_sent_completely_and_closed() -> None:
    file = io.BytesIO(FILE)

    def serve(_: Any, start_response: Any) -> FileResponse:
        start_response("200 OK", [])
        return FileResponse(file)

    async def download() -> bytes:
        client = Client(build_scope())
        await client.call(WSGIBridge(serve))
        assert [message.get("more_body", False) for message in client.sent[-2:]] == [True, False]
        return b"".join(message["body"] for message in client.sent[1:])

    assert asyncio.run(download()) == FILE
    assert file.closed


async def serve_large(_: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(32):
        await send({"type": "http.response.body", "body": bytes(MB // 2), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def start_server(app: Any) -> tuple[asyncio.Server, ServerState, int]:
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    return server, state, server.sockets[0].getsockname()[1]


async def open_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=connection, limit=65_536)


def test_connection_that_reads_nothing_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "SECONDS", 0.1)

    started = 0

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        nonlocal started
        started += 1
        await serve_large(scope, receive, send)

    async def attack() -> None:
        server, state, port = await start_server(serve)
        async with server:
            writers = []
            for _ in range(20):
                _, writer = await open_connection(port)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                writers.append(writer)
            async with asyncio.timeout(60):
                # The first may be aborted before the last is accepted.
                while started < 20 or state.connections or state.tasks:
                    await asyncio.sleep(0.02)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(attack())


def test_slow_client_gets_the_whole_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "SECONDS", 0.2)

    async def download() -> int:
        server, _, port = await start_server(serve_large)
        async with server:
            reader, writer = await open_connection(port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            size = 0
            while chunk := await reader.read(MB):
                size += len(chunk)
                await asyncio.sleep(0.002)
            writer.close()
            return size

    assert asyncio.run(download()) > 16 * MB


async def _owner(identity: str) -> body_memory.MemoryOwner:
    return caller_share(identity)


def test_declared_bodies_hold_no_memory() -> None:
    """50 connections declare 25 MB each and send nothing: others' bodies are read."""

    async def attack() -> tuple[int, int]:
        bridge = WSGIBridge(serve_file_or_text, lambda _: _owner("attacker"))
        clients = [Client(build_scope("POST", content_length=str(25 * MB))) for _ in range(50)]
        tasks = [asyncio.create_task(client.call(bridge)) for client in clients]
        async with asyncio.timeout(60):
            while not all(client.receive_count for client in clients):  # each body is awaited
                await asyncio.sleep(0.01)
        used = body_memory_budget.used
        for client in clients:
            client.has_left.set()
        await asyncio.gather(*tasks)
        return used, body_memory_budget.used

    assert asyncio.run(attack()) == (0, 0)


@pytest.mark.parametrize(
    "framing", [{"content_length": "5000000"}, {"transfer_encoding": "chunked"}]
)
def test_unauthenticated_body_is_not_read(framing: dict[str, str]) -> None:
    async def refuse(_: Any) -> body_memory.MemoryOwner:
        raise errors.Unauthenticated

    async def attack() -> Client:
        client = Client(build_scope("POST", **framing), *[bytes(40_000)] * 10)
        await client.call(WSGIBridge(serve_file_or_text, refuse))
        return client

    client = asyncio.run(attack())

    assert client.error == (401, "unauthenticated")
    assert client.receive_count == (0 if "content_length" in framing else 2)
    assert body_memory_budget.used == 0


def test_body_below_the_minimum_pace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_reader, "BODY_GRACE_SECONDS", 0.05)

    async def attack() -> Client:
        client = Client(build_scope("POST", content_length="1000"), b"slow")
        await asyncio.wait_for(client.call(WSGIBridge(serve_file_or_text)), 60)
        return client

    client = asyncio.run(attack())

    assert client.error == (408, "body_too_slow")
    assert (b"connection", b"close") in client.sent[0]["headers"]


def test_one_caller_gets_half_of_the_body_memory(settings: Any) -> None:
    settings.BODY_MEMORY_BYTES = 1000
    budget = MemoryBudget()
    with budget.reserve() as first, budget.reserve() as second, budget.reserve() as other:
        first.assign(caller_share("attacker"))
        second.assign(caller_share("attacker"))
        first.add(450)
        with pytest.raises(body_memory.BudgetExceeded):
            second.add(100)
        other.assign(caller_share("other"))
        other.add(500)

    assert budget.used == 0


def test_unauthenticated_senders_get_an_eighth_per_address(settings: Any) -> None:
    settings.BODY_MEMORY_BYTES = 800
    budget = MemoryBudget()
    with budget.reserve() as first, budget.reserve() as second:
        first.assign(body_memory.address_share("192.0.2.1"))
        second.assign(body_memory.address_share("192.0.2.1"))
        first.add(90)
        with pytest.raises(body_memory.BudgetExceeded):
            second.add(20)


class WatchedQueue(asyncio.Queue[dict[str, Any]]):
    """Tells when its next message is awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = asyncio.Event()

    async def get(self) -> dict[str, Any]:
        self.is_awaited.set()
        return await super().get()


async def open_large_request(path: str, **headers: str) -> AsgiRequest:
    """Declare 20 MB and send none of them."""
    request = AsgiRequest("POST", path, headers, b"")
    request._scope["headers"] = [
        *(h for h in request._scope["headers"] if h[0] != b"content-length"),
        (b"content-length", b"%d" % (20 * MB)),
    ]
    request._incoming = WatchedQueue()
    return request


@pytest.mark.parametrize(
    ("slug", "has_key", "status"), [("no-such-agent", True, 404), ("{own}", False, 401)]
)
async def test_agent_route_authenticates_before_it_reads(
    asgi_app: None, agent: Any, key: str, *, slug: str, has_key: bool, status: int
) -> None:
    path = f"/agents/{slug.format(own=agent.slug)}/threads"
    headers = {"X-Api-Key": key} if has_key else {}

    async with await open_large_request(path, **headers) as request:
        answer = await asyncio.wait_for(request.wait_for_end(), 10)

    assert answer.status == status


async def test_platform_route_authenticates_before_it_reads(asgi_app: None, key: str) -> None:
    async with await open_large_request("/runs/multipart") as request:
        refused = await asyncio.wait_for(request.wait_for_end(), 10)
    async with await open_large_request("/runs/multipart", **{"X-Api-Key": "slip_x"}) as request:
        unknown = await asyncio.wait_for(request.wait_for_end(), 10)
    async with await open_large_request("/runs/multipart", **{"X-Api-Key": key}) as request:
        assert isinstance(request._incoming, WatchedQueue)
        await asyncio.wait_for(request._incoming.is_awaited.wait(), 60)
        assert request.answer.status == 0

    assert (refused.status, unknown.status) == (401, 401)
    assert body_memory_budget.used == 0


async def test_agent_bodies_count_towards_the_budget(
    asgi_app: None, agent: Any, key: str, settings: Any
) -> None:
    settings.BODY_MEMORY_BYTES = 400_000
    body = json.dumps({"metadata": {"text": "x" * 150_000}}).encode()

    def open_partial() -> AsgiRequest:
        headers = {"X-Api-Key": key}
        request = AsgiRequest("POST", f"/agents/{agent.slug}/threads", headers, body)
        request._incoming = asyncio.Queue()
        part = {"type": "http.request", "body": body[:-1], "more_body": True}
        request._incoming.put_nowait(part)
        return request

    async with open_partial() as first:
        while body_memory_budget.used < len(body) - 1:
            await asyncio.sleep(0.01)
        async with open_partial() as second:
            refused = await second.wait_for_end()
        last = {"type": "http.request", "body": body[-1:], "more_body": False}
        first._incoming.put_nowait(last)
        created = await first.wait_for_end()

    assert (refused.status, refused.json()["code"]) == (503, "busy")
    assert created.status == 200
    assert body_memory_budget.used == 0


def test_every_agent_route_that_reads_a_body_needs_a_caller() -> None:
    assert [e.path for e in ENDPOINTS if e.reads_body and e.is_public] == []
