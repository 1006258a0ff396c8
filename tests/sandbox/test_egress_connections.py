"""The egress proxy's decisions, and its connections without a sandbox."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from contextlib import asynccontextmanager

import pytest

from apps.core.name_resolver import Resolver
from apps.deployments.sandbox.egress import connections
from apps.deployments.sandbox.egress import rules as egress_rules
from apps.deployments.sandbox.egress.connections import RequestRejected, parse_head
from apps.deployments.sandbox.egress.rules import AddressRefused, Rules


@asynccontextmanager
async def served(callback):
    """Serve asyncio connections on a port of the loopback address, and yield the port."""
    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_name_that_resolves_to_both_kinds_of_addresses_is_refused():
    rules = Rules([], [])
    public = ipaddress.ip_address("93.184.216.34")
    private = ipaddress.ip_address("10.0.0.1")

    rules.check("name.example", 443, [public])
    with pytest.raises(AddressRefused):
        rules.check("name.example", 443, [public, private])


def test_public_and_neighbouring_addresses_of_this_machine_are_refused(monkeypatch):
    own = [ipaddress.ip_interface(text) for text in ("93.184.216.34/24", "192.0.2.2/24")]
    monkeypatch.setattr(egress_rules, "_interfaces", lambda: own)
    rules = Rules([], [])

    def is_allowed(address):
        return rules._is_allowed(ipaddress.ip_address(address))

    assert is_allowed("93.184.216.35")
    assert is_allowed("203.0.113.80")
    assert not is_allowed("93.184.216.34")
    assert not is_allowed("::ffff:93.184.216.34")
    assert not is_allowed("192.0.2.3")


def test_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch):
    """A server of names that changes its answer gains nothing (DNS rebinding)."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])
    connected = []

    def resolve(_):
        return [ipaddress.ip_address(text) for text in next(answers)]

    async def open_connection(host, port):
        connected.append(host)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(connections.ssrf, "resolve", resolve)
    monkeypatch.setattr(connections.asyncio, "open_connection", open_connection)

    async def connect():
        served = connections.Connections(Rules([], []), uses_operator_proxy=False)
        await served._open(connections.RequestTarget("rebinding.example", 80))

    with pytest.raises(RequestRejected, match="No connection"):
        asyncio.run(connect())
    with pytest.raises(RequestRejected, match="private network"):
        asyncio.run(connect())
    assert connected == ["93.184.216.34"]


def test_a_request_of_plain_http_is_rewritten_for_one_server():
    head = (
        b"GET http://one.example:81/path?q=1 HTTP/1.1\r\nHost: one.example:81\r\n"
        b"Proxy-Authorization: Basic c2VjcmV0\r\nConnection: keep-alive\r\n\r\n"
    )

    target = parse_head(head)

    assert (target.host, target.port) == ("one.example", 81)
    assert target.head == (
        b"GET /path?q=1 HTTP/1.1\r\nHost: one.example:81\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET https://a/ HTTP/1.1\r\n\r\n",
        b"CONNECT a:99999 HTTP/1.1\r\n\r\n", b"CONNECT :80 HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n", b"\xff \xff \xff\r\n\r\n",
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(head):
    with pytest.raises(RequestRejected) as refusal:
        parse_head(head)

    assert refusal.value.status == "400 Bad Request"


async def test_operator_proxy_connects_build_steps_with_its_password(monkeypatch):
    heads = []

    async def proxy(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        writer.close()

    def fail(host):
        raise connections.ssrf.ResolutionFailed(host)

    monkeypatch.setattr(connections.ssrf, "resolve", fail)
    opened = connections.Connections(Rules([], []), uses_operator_proxy=True)
    direct = connections.Connections(Rules([], []), uses_operator_proxy=False)
    target = connections.RequestTarget("packages.example", 443)
    async with served(proxy) as port:
        monkeypatch.setenv("https_proxy", f"http://ann:s%40crt@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "internal.example")

        reader, writer = await opened._open(target)
        assert await reader.read() == b"hello"
        writer.close()
        for connection, host in ((direct, "packages.example"), (opened, "internal.example")):
            with pytest.raises(RequestRejected, match="cannot be resolved"):
                await connection._open(connections.RequestTarget(host, 443))

    head = (
        b"CONNECT packages.example:443 HTTP/1.1\r\nHost: packages.example:443\r\n"
        b"Proxy-Authorization: Basic YW5uOnNAY3J0\r\n\r\n"
    )
    assert heads == [head]
    with pytest.raises(RequestRejected, match="operator's proxy failed: ConnectionRefusedError"):
        await opened._open(target)


async def test_operator_proxy_is_not_asked_for_private_addresses(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    opened = connections.Connections(Rules([], []), uses_operator_proxy=True)

    with pytest.raises(RequestRejected, match="private network"):
        await opened._open(connections.RequestTarget("10.0.0.1", 443))


async def test_number_of_connections_is_bounded(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    opened = connections.Connections(Rules([], []), uses_operator_proxy=False)
    async with served(opened.serve_proxy) as port:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        with pytest.raises((ConnectionError, EOFError)):
            await streams[2][0].readexactly(1)
        streams[0][1].write(b"CONNECT 10.0.0.1:80 HTTP/1.1\r\n\r\n")
        assert (await streams[0][0].readline()).startswith(b"HTTP/1.1 403 ")
        for _, writer in streams:
            writer.close()


async def test_head_of_a_request_has_a_deadline(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    opened = connections.Connections(Rules([], []), uses_operator_proxy=False)
    async with served(opened.serve_proxy) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT 10.0.0.1:80 HTTP/1.1\r\n")

        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_silent_connection_is_closed(monkeypatch):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.05)
    opened = connections.Connections(Rules(["127.0.0.0/8"], []), uses_operator_proxy=False)

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with served(silent) as server, served(opened.serve_proxy) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n")

        with pytest.raises((ConnectionError, EOFError)):
            await asyncio.wait_for(reader.readexactly(1), 60)
        writer.close()


async def test_name_servers_that_do_not_answer_delay_only_their_own_sandbox(monkeypatch):
    released = threading.Event()

    def resolve(host):
        if host == "slow.example":
            assert released.wait(60)
        return [ipaddress.ip_address("93.184.216.34")]

    monkeypatch.setattr(connections.ssrf, "resolve", resolve)
    monkeypatch.setattr(connections, "_resolver", Resolver(threads=4, threads_per_owner=3))
    monkeypatch.setattr(connections, "RESOLVE_SECONDS", 60)
    attacker = connections.Connections(Rules([], []), uses_operator_proxy=False)
    other = connections.Connections(Rules([], []), uses_operator_proxy=False)

    slow = [asyncio.create_task(attacker._resolve("slow.example")) for _ in range(20)]
    await asyncio.sleep(0)
    found = await other._resolve("quick.example")

    assert found == [ipaddress.ip_address("93.184.216.34")]
    assert not any(task.done() for task in slow)
    released.set()
    await asyncio.gather(*slow)
