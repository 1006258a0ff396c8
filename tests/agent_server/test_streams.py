"""A run's stream, from the worker's writer to the reader of the web process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from uuid import UUID

import pytest

from apps.agent_server.streaming import subscription as subscriptions
from apps.agent_server.streaming.hub import StreamHub
from apps.agent_server.streaming.streams import (
    BEGINNING,
    Event,
    EventId,
    pack_batch,
    stream_key,
    unpack_events,
)
from apps.agent_server.streaming.subscription import Subscription
from apps.agent_server.streaming.writer import StreamWriter
from apps.core.ids import uuid7
from tests.agent_server.conftest import hang_up


@pytest.fixture
async def writer(settings, redis_client) -> AsyncIterator[StreamWriter]:
    writer = StreamWriter(settings.REDIS_URL)
    yield writer
    await writer.aclose()


@pytest.fixture
async def hub(settings, redis_client) -> AsyncIterator[StreamHub]:
    hub = StreamHub(settings.REDIS_URL)
    await hub._link.connect()  # so that "from now on" means this moment
    yield hub
    await hub.aclose()


@pytest.fixture
def run_id() -> UUID:
    return uuid7()


async def some(reader: Subscription, count: int) -> list[Event]:
    """The next so many events."""
    found: list[Event] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await reader.next()
    assert len(found) == count
    return found


def datas(events: list[Event]) -> list[bytes]:
    return [event.data for event in events]


async def test_events_are_read_as_written(writer, hub, run_id):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("metadata", b'{"attempt":1}'), ("values", b'{"n":1}')])
        await writer.end(run_id, "success", result=b'{"n":1}')
        first, second, end = await some(reader, 3)

    assert (first.name, first.data) == (b"metadata", b'{"attempt":1}')
    assert (second.name, second.data) == (b"values", b'{"n":1}')
    assert (end.name, end.data, end.result) == (b"end", b'{"status":"success"}', b'{"n":1}')


async def test_late_reader_gets_each_event_once(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("values", b"2")])
        found = await some(reader, 2)

    assert datas(found) == [b"1", b"2"]


async def test_reading_from_now_skips_earlier_events(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    async with hub.open(run_id, None) as reader:
        reader.wake()
        assert await reader.next() == []
        waiting = asyncio.create_task(some(reader, 1))
        await asyncio.sleep(0)
        await writer.append(run_id, [("values", b"2")])
        found = await waiting

    assert datas(found) == [b"2"]


async def test_reading_from_now_includes_an_earlier_end(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.end(run_id, "error")
    await writer.flush()
    async with hub.open(run_id, None) as reader:
        [end] = await some(reader, 1)

    assert (end.name, end.data) == (b"end", b'{"status":"error"}')


async def test_ids_are_unique_and_grow_within_a_millisecond(writer, hub, run_id):
    for number in range(300):
        await writer.append(run_id, [("custom", b"%d" % number)])
        if number % 7 == 0:
            await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        found = await some(reader, 300)

    assert datas(found) == [b"%d" % number for number in range(300)]
    assert all(one.id < next_one.id for one, next_one in pairwise(found))


async def test_reading_resumes_after_any_event_of_a_batch(writer, hub, run_id):
    await writer.append(run_id, [("custom", b"%d" % number) for number in range(5)])
    async with hub.open(run_id, BEGINNING) as reader:
        seen = await some(reader, 5)
    for index, event in enumerate(seen[:-1]):
        async with hub.open(run_id, event.id) as reader:
            rest = await some(reader, 4 - index)
        assert rest == seen[index + 1 :]


async def test_many_pages_are_read_in_order(writer, hub, run_id, monkeypatch):
    monkeypatch.setattr(subscriptions, "BATCHES_PER_READ", 3)
    for number in range(20):
        await writer.append(run_id, [("custom", b"%d" % number)])
        await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        found = await some(reader, 20)

    assert datas(found) == [b"%d" % number for number in range(20)]


async def test_slow_reader_gets_all_events_from_redis(writer, hub, run_id, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAILBOX_BYTES", 1_000)
    async with hub.open(run_id, BEGINNING) as reader:
        for number in range(100):
            await writer.append(run_id, [("custom", b"%0200d" % number)])
            await writer.flush()
        waiting = reader._size
        found = await some(reader, 100)

    assert waiting <= 1_300
    assert [int(event.data) for event in found] == list(range(100))


async def test_readers_share_one_subscription_until_the_last_leaves(
    writer, hub, run_id, redis_client
):
    async with hub.open(run_id, BEGINNING) as one:
        async with hub.open(run_id, BEGINNING) as other:
            await writer.append(run_id, [("values", b"1")])
            assert datas(await some(one, 1)) == datas(await some(other, 1)) == [b"1"]
            assert redis_client.pubsub_numsub(stream_key(run_id)) == [
                (stream_key(run_id).encode(), 1)
            ]
        await writer.append(run_id, [("values", b"2")])
        assert datas(await some(one, 1)) == [b"2"]
    await hub.ask(("PING",))

    assert hub.open_streams == 0
    assert redis_client.pubsub_numsub(stream_key(run_id)) == [(stream_key(run_id).encode(), 0)]


async def test_reader_survives_a_lost_connection(writer, hub, run_id, redis_client):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("values", b"1")])
        assert datas(await some(reader, 1)) == [b"1"]
        hang_up(redis_client)
        await writer.append(run_id, [("values", b"2")])
        await writer.end(run_id, "success")
        found = await some(reader, 2)

    assert datas(found) == [b"2", b'{"status":"success"}']


async def test_writer_survives_a_lost_connection(writer, hub, run_id, redis_client):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    hang_up(redis_client)
    for number in (2, 3):
        await writer.append(run_id, [("values", b"%d" % number)])
    async with hub.open(run_id, BEGINNING) as reader:
        found = await some(reader, 3)

    assert datas(found) == [b"1", b"2", b"3"]


async def test_writer_with_a_slow_clock_continues_after_the_last_id(
    writer, hub, run_id, redis_client
):
    ahead = EventId(99_999_999_999_999, 4)
    redis_client.xadd(
        stream_key(run_id), {"b": pack_batch(ahead, [("values", b"1")])}, id=str(ahead)
    )
    async with hub.open(run_id, BEGINNING) as reader:
        await some(reader, 1)
        await writer.append(run_id, [("values", b"2")])
        [found] = await some(reader, 1)

    assert found.data == b"2"
    assert found.id > ahead


async def test_streams_expire(writer, run_id, redis_client, settings):
    kept = uuid7()
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    assert redis_client.ttl(stream_key(run_id)) > 23 * 3600

    await writer.end(run_id, "success")
    await writer.end(kept, "success", resumable=True)
    await writer.flush()

    assert 0 < redis_client.ttl(stream_key(run_id)) <= 15
    assert 15 < redis_client.ttl(stream_key(kept)) <= settings.RESUMABLE_STREAM_TTL_SECONDS


async def test_large_result_is_only_in_postgresql(writer, hub, run_id):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.end(run_id, "success", result=b"x" * 300_000)
        [end] = await some(reader, 1)

    assert end.result is None


def test_packed_batch_has_the_id_of_each_event():
    batch = pack_batch(EventId(7, 2), [("a", b"1"), ("b", b"2"), ("end", b"3", b"r")])

    assert unpack_events(batch) == [
        Event(EventId(7, 0), b"a", b"1"),
        Event(EventId(7, 1), b"b", b"2"),
        Event(EventId(7, 2), b"end", b"3", b"r"),
    ]


@pytest.mark.parametrize("text", ["", "-1", "a", "1-", "1-x", "1-2-3", "1.5", "9" * 50])
def test_invalid_event_id_is_rejected(text):
    with pytest.raises(ValueError, match="not an event's id"):
        EventId.parse(text)
