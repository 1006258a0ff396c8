"""Resumable streams survive a Redis that loses all its data: a real engine and server."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from apps.agent_server.models import AgentRun, StreamedEvents
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import StreamHub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.core.sync_bridge import in_thread
from config.embedded.redis import find_binary
from tests.agent_runtime.factories import make_run, make_thread
from tests.installation import wait_until

EVENT_COUNT = 150
SERVER = find_binary()


class VolatileRedis:
    """A Redis server that loses its data when killed and restarts on the same socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "r.sock"
        self.url = f"unix://{self.socket}?db=0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = subprocess.Popen(
            [SERVER, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = redis.Redis.from_url(self.url, socket_timeout=10)

        def answers() -> bool:
            with suppress(redis.ConnectionError):
                return bool(client.ping())
            return False

        wait_until(answers, "the start of Redis")
        client.close()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def volatile_redis(settings) -> Iterator[VolatileRedis]:
    with tempfile.TemporaryDirectory() as folder:
        volatile_redis = VolatileRedis(Path(folder))
        volatile_redis.start()
        settings.REDIS_URL = volatile_redis.url
        yield volatile_redis
        volatile_redis.kill()


@pytest.fixture
async def hub(volatile_redis) -> AsyncIterator[StreamHub]:
    hub = StreamHub(volatile_redis.url)
    yield hub
    await hub.aclose()


async def read_events(
    hub: StreamHub, run, after: EventId, *, is_run_over: bool = False
) -> list[Event]:
    """Return the events of the run after `after`, up to its end.

    `is_run_over` tells the reader that the run is over, once that is committed with all its events,
    as the platform does. Redis has them earlier.
    """
    events: list[Event] = []
    if is_run_over:
        await in_thread(wait_until, lambda: is_over(run), "the commit of the run's end")
    async with asyncio.timeout(60), hub.open(run.pk, after, is_resumable=True) as reader:
        if is_run_over:
            reader.finish("over")
        while not events or events[-1].name != END:
            events += await reader.next()
    return events


def start_run(engine, revision):
    thread = make_thread(revision)
    kwargs = {
        "input": {"count": EVENT_COUNT, "pause": 0.01},
        "stream_mode": ["custom"],
        "resumable": True,
    }
    run = make_run(thread, "tell", kwargs=kwargs, resumable=True)
    engine.call(engine.engine.claim_or_queue, thread.pk)
    return run


def is_over(run) -> bool:
    return AgentRun.unscoped.filter(pk=run.pk).exclude(status__in=["pending", "running"]).exists()


def custom_numbers(events: list[Event]) -> list[int]:
    return [int(event.data) for event in events if event.name == b"custom"]


async def test_a_reader_gets_each_event_once_across_two_redis_kills(
    volatile_redis, hub, engine, revision
):
    run = await in_thread(start_run, engine, revision)
    async with hub.open(run.pk, BEGINNING, is_resumable=True) as reader:
        events: list[Event] = []
        for kill_at in (30, 90, None):
            while (kill_at is None or len(events) < kill_at) and (
                not events or events[-1].name != END
            ):
                async with asyncio.timeout(60):
                    events += await reader.next()
            if kill_at is not None:
                await asyncio.to_thread(volatile_redis.kill)
                await asyncio.to_thread(volatile_redis.start)

    assert custom_numbers(events) == list(range(EVENT_COUNT))
    assert len({event.id for event in events}) == len(events)
    replayed = await read_events(hub, run, BEGINNING, is_run_over=True)
    assert replayed == [event._replace(result=None) for event in events]


async def test_a_reader_resumes_after_its_last_event_when_redis_lost_its_data(
    volatile_redis, hub, engine, revision
):
    run = await in_thread(start_run, engine, revision)
    events = await read_events(hub, run, BEGINNING)
    await asyncio.to_thread(volatile_redis.kill)
    await asyncio.to_thread(volatile_redis.start)

    for index in (0, 7, 80):
        remaining = await read_events(hub, run, events[index].id, is_run_over=True)
        assert [event.id for event in remaining] == [event.id for event in events[index + 1 :]]


async def test_all_pages_of_stored_events_are_read(
    volatile_redis, hub, engine, revision, monkeypatch
):
    monkeypatch.setattr(stream_history, "ROWS_PER_READ", 1)
    run = await in_thread(start_run, engine, revision)
    events = await read_events(hub, run, BEGINNING)
    await asyncio.to_thread(volatile_redis.kill)
    await asyncio.to_thread(volatile_redis.start)

    assert custom_numbers(await read_events(hub, run, BEGINNING, is_run_over=True)) == list(
        range(EVENT_COUNT)
    )
    rows = StreamedEvents.objects.filter(run_id=run.pk)
    assert await in_thread(rows.count) > 3
    assert events[-1].name == END


async def test_stored_events_are_deleted_after_their_time_to_live(
    volatile_redis, hub, engine, revision, settings
):
    run = await in_thread(start_run, engine, revision)
    await read_events(hub, run, BEGINNING)
    await in_thread(wait_until, lambda: is_over(run), "the commit of the run's end")
    assert await in_thread(stream_history.delete_expired) == 0

    settings.RESUMABLE_STREAM_TTL_SECONDS = 0
    assert await in_thread(stream_history.delete_expired) > 0
    assert await in_thread(stream_history.read_after, run.pk, BEGINNING) == []


async def test_a_run_that_is_not_resumable_stores_no_events(volatile_redis, hub, engine, revision):
    thread = await in_thread(make_thread, revision)
    kwargs = {"input": {"count": 5, "pause": 0}, "stream_mode": ["custom"]}
    run = await in_thread(make_run, thread, "tell", kwargs=kwargs)
    engine.call(engine.engine.claim_or_queue, thread.pk)
    async with asyncio.timeout(60), hub.open(run.pk, BEGINNING) as reader:
        events: list[Event] = []
        while not events or events[-1].name != END:
            events += await reader.next()

    assert custom_numbers(events) == list(range(5))
    assert await in_thread(StreamedEvents.objects.count) == 0
