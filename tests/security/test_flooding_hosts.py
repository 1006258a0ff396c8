"""A host that floods its worker with frames waits while other organizations send some."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.agent_runtime.hosts.frame_turns import ACTIVE_SECONDS, FrameTurns
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_runtime.hosts.launch import RevisionRef, StartingHost
from apps.graph_host.wire import Frame, encode

MB = 1_048_576
EVENTS = encode(["events", 1, 0, [["custom", b"x" * 100_000]]])
FLOOD = 400
"""Frames: 40 MB, of which the credit of an organization pays for 8."""


class IdleProcess:
    pid = 0
    stdout = None

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        pass


class CountingSession:
    def __init__(self) -> None:
        self.frames = 0

    def on_frame(self, _: Frame) -> None:
        self.frames += 1

    def on_host_exit(self, _: str) -> None:
        pass


class SocketHost:
    """A graph host as its worker sees it, with the other end of its socket."""

    def __init__(self, turns: FrameTurns, organization_id: UUID) -> None:
        here, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        launched = StartingHost(IdleProcess(), here, organization_id=organization_id)
        revision = RevisionRef(uuid4(), uuid4(), uuid4())
        self.host = GraphHost(
            revision, launched, lambda *_: None, lambda: None, lambda _: None, turns=turns
        )
        self.session = CountingSession()
        self.host.open_session(self.session)

    async def send(self, count: int, data: bytes = EVENTS) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            await loop.sock_sendall(self.peer, data)


@pytest.fixture
def now() -> list[float]:
    """The time of the accounts, which stands still: nothing is paid off."""
    return [0.0]


@pytest.fixture
async def make_host(now: list[float]) -> AsyncIterator[Callable[[UUID], SocketHost]]:
    turns, hosts = FrameTurns(50, lambda: now[0]), []

    def make(organization_id: UUID) -> SocketHost:
        hosts.append(SocketHost(turns, organization_id))
        return hosts[-1]

    yield make
    for host in hosts:
        host.host.close()
        host.peer.close()


async def wait_for(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def test_flood_waits_for_the_frames_of_another_organization(make_host, now) -> None:
    organization_id = uuid4()
    floods = [make_host(organization_id) for _ in range(4)]
    other = make_host(uuid4())
    await other.send(1, encode(["writes", 1, 0]))
    await wait_for(lambda: other.session.frames == 1)
    attacks = [asyncio.create_task(flood.send(FLOOD)) for flood in floods]
    await wait_for(lambda: all(flood.host._pauses for flood in floods))

    taken = sum(flood.session.frames for flood in floods)
    for _ in range(50):
        await other.send(1, encode(["writes", 1, 0]))
    await wait_for(lambda: other.session.frames == 51)

    # Four hosts together have the credit of one organization, 8 MB, and a read each.
    assert 0 < taken * 100_000 < 10 * MB
    assert not other.host._pauses
    assert not any(attack.done() for attack in attacks)  # the hosts are blocked
    now[0] += ACTIVE_SECONDS + 1  # the other one has stopped
    await asyncio.gather(*attacks)
    await wait_for(lambda: [flood.session.frames for flood in floods] == [FLOOD] * 4)


async def test_flood_of_the_only_organization_does_not_wait(make_host) -> None:
    flood = make_host(uuid4())

    await flood.send(FLOOD)
    await wait_for(lambda: flood.session.frames == FLOOD)

    assert not flood.host._pauses


async def test_host_that_waits_for_two_reasons_is_read_after_both(make_host) -> None:
    flood = make_host(uuid4())
    first, second = asyncio.Event(), asyncio.Event()
    flood.host.pause_until(first.wait)
    flood.host.pause_until(second.wait)
    await flood.send(1)

    first.set()
    await asyncio.sleep(0.1)
    assert flood.session.frames == 0
    second.set()

    await wait_for(lambda: flood.session.frames == 1)
