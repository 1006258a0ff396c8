"""Several web processes that share one listening socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from config.web import BalancedServer, ConnectionCounts

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener_socket:
        yield listener_socket


@pytest.fixture
async def servers(listener, tmp_path):
    servers = []
    for index in range(2):
        config = uvicorn.Config(application, lifespan="off", log_config=None)
        config.load()
        server = BalancedServer(config, ConnectionCounts(tmp_path / "counts", index, 2))
        server.lifespan = config.lifespan_class(config)
        await server.startup([listener.dup()])
        servers.append(server)
    yield servers
    for server in servers:
        await server.shutdown()


@pytest.fixture
async def connect(listener):
    writers = []

    async def open_connection():
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writers.append(writer)
        return reader, writer

    yield open_connection
    for writer in writers:
        writer.close()


def count_connections(servers):
    return [len(server.server_state.connections) for server in servers]


async def send_request(streams):
    reader, writer = streams
    writer.write(REQUEST)
    return await reader.readuntil(b"\r\n\r\n")


async def test_connections_are_balanced_over_processes(servers, connect):
    connections = [await connect() for _ in range(8)]

    answers = await asyncio.gather(*map(send_request, connections))

    assert all(answer.startswith(b"HTTP/1.1 204") for answer in answers)
    assert count_connections(servers) == [4, 4]


async def test_dead_process_receives_no_connections(servers, connect, tmp_path):
    # The dead process has no connections and accepts none.
    dead_counts = ConnectionCounts(tmp_path / "counts", 0, 2)
    servers[0]._accepting[0].cancel()

    for count in (1, 2, 3):
        await send_request(await connect())
        dead_counts.set(0)
        assert count_connections(servers) == [0, count]


def test_restarted_process_resets_its_count(tmp_path):
    first, second = (ConnectionCounts(tmp_path / "counts", index, 2) for index in range(2))
    first.set(3)
    second.set(2)

    assert (first.is_least(), second.is_least()) == (False, True)

    ConnectionCounts(tmp_path / "counts", 0, 2)
    assert (first.is_least(), second.is_least()) == (True, False)
