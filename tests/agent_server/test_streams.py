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
    unpack_batch,
)
from apps.agent_server.streaming.subscription import Subscription
from apps.agent_server.streaming.writer import StreamWriter
from apps.core.ids import uuid7
from tests.agent_server.conftest import drop_connections


@pytest.fixture
async def writer(settings, redis_client) -> AsyncIterator[StreamWriter]:
    writer = StreamWriter(settings.REDIS_URL)
    yield writer
    await writer.aclose()


@pytest.fixture
async def hub(settings, redis_client) -> AsyncIterator[StreamHub]:
    hub = StreamHub(settings.REDIS_URL)
    await hub._link.connect()  # subscriptions must not begin before the connection exists
    yield hub
    await hub.aclose()


@pytest.fixture
def run_id() -> UUID:
    return uuid7()


async def read_events(reader: Subscription, count: int) -> list[Event]:
    """Read exactly `count` events."""
    events: list[Event] = []
    async with asyncio.timeout(60):
        while len(events) < count:
            events += await reader.next()
    assert len(events) == count
    return events


def list_data(events: list[Event]) -> list[bytes]:
    return [event.data for event in events]


async def test_events_are_read_as_written(writer, hub, run_id):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("metadata", b'{"attempt":1}'), ("values", b'{"n":1}')])
        await writer.end(run_id, "success", result=b'{"n":1}')
        first, second, end = await read_events(reader, 3)

    assert (first.name, first.data) == (b"metadata", b'{"attempt":1}')
    assert (second.name, second.data) == (b"values", b'{"n":1}')
    assert (end.name, end.data, end.result) == (b"end", b'{"status":"success"}', b'{"n":1}')


async def test_late_reader_gets_each_event_once(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("values", b"2")])
        events = await read_events(reader, 2)

    assert list_data(events) == [b"1", b"2"]


async def test_reading_from_now_skips_earlier_events(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    async with hub.open(run_id, None) as reader:
        reader.wake()
        assert await reader.next() == []
        waiting = asyncio.create_task(read_events(reader, 1))
        await asyncio.sleep(0)
        await writer.append(run_id, [("values", b"2")])
        events = await waiting

    assert list_data(events) == [b"2"]


async def test_reading_from_now_includes_an_earlier_end(writer, hub, run_id):
    await writer.append(run_id, [("values", b"1")])
    await writer.end(run_id, "error")
    await writer.flush()
    async with hub.open(run_id, None) as reader:
        [end] = await read_events(reader, 1)

    assert (end.name, end.data) == (b"end", b'{"status":"error"}')


async def test_ids_are_unique_and_grow_within_a_millisecond(writer, hub, run_id):
    for number in range(300):
        await writer.append(run_id, [("custom", b"%d" % number)])
        if number % 7 == 0:
            await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        events = await read_events(reader, 300)

    assert list_data(events) == [b"%d" % number for number in range(300)]
    assert all(event.id < next_event.id for event, next_event in pairwise(events))


async def test_reading_resumes_after_any_event_of_a_batch(writer, hub, run_id):
    await writer.append(run_id, [("custom", b"%d" % number) for number in range(5)])
    async with hub.open(run_id, BEGINNING) as reader:
        events = await read_events(reader, 5)
    for index, event in enumerate(events[:-1]):
        async with hub.open(run_id, event.id) as reader:
            remaining = await read_events(reader, 4 - index)
        assert remaining == events[index + 1 :]


async def test_many_pages_are_read_in_order(writer, hub, run_id, monkeypatch):
    monkeypatch.setattr(subscriptions, "BATCHES_PER_READ", 3)
    for number in range(20):
        await writer.append(run_id, [("custom", b"%d" % number)])
        await writer.flush()
    async with hub.open(run_id, BEGINNING) as reader:
        events = await read_events(reader, 20)

    assert list_data(events) == [b"%d" % number for number in range(20)]


async def test_slow_reader_gets_all_events_from_redis(writer, hub, run_id, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAILBOX_BYTES", 1_000)
    async with hub.open(run_id, BEGINNING) as reader:
        for number in range(100):
            await writer.append(run_id, [("custom", b"%0200d" % number)])
            await writer.flush()
        buffered_bytes = reader._size
        events = await read_events(reader, 100)

    assert buffered_bytes <= 1_300
    assert [int(event.data) for event in events] == list(range(100))


async def test_readers_share_one_subscription_until_the_last_leaves(
    writer, hub, run_id, redis_client
):
    async with hub.open(run_id, BEGINNING) as first:
        async with hub.open(run_id, BEGINNING) as second:
            await writer.append(run_id, [("values", b"1")])
            assert (
                list_data(await read_events(first, 1))
                == list_data(await read_events(second, 1))
                == [b"1"]
            )
            assert redis_client.pubsub_numsub(stream_key(run_id)) == [
                (stream_key(run_id).encode(), 1)
            ]
        await writer.append(run_id, [("values", b"2")])
        assert list_data(await read_events(first, 1)) == [b"2"]
    await hub.request(("PING",))

    assert hub.open_streams == 0
    assert redis_client.pubsub_numsub(stream_key(run_id)) == [(stream_key(run_id).encode(), 0)]


async def test_reader_survives_a_lost_connection(writer, hub, run_id, redis_client):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.append(run_id, [("values", b"1")])
        assert list_data(await read_events(reader, 1)) == [b"1"]
        drop_connections(redis_client)
        await writer.append(run_id, [("values", b"2")])
        await writer.end(run_id, "success")
        events = await read_events(reader, 2)

    assert list_data(events) == [b"2", b'{"status":"success"}']


async def test_writer_survives_a_lost_connection(writer, hub, run_id, redis_client):
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    drop_connections(redis_client)
    for number in (2, 3):
        await writer.append(run_id, [("values", b"%d" % number)])
    async with hub.open(run_id, BEGINNING) as reader:
        events = await read_events(reader, 3)

    assert list_data(events) == [b"1", b"2", b"3"]


async def test_writer_with_a_slow_clock_continues_after_the_last_id(
    writer, hub, run_id, redis_client
):
    last_id = EventId(99_999_999_999_999, 4)
    redis_client.xadd(
        stream_key(run_id), {"b": pack_batch(last_id, [("values", b"1")])}, id=str(last_id)
    )
    async with hub.open(run_id, BEGINNING) as reader:
        await read_events(reader, 1)
        await writer.append(run_id, [("values", b"2")])
        [event] = await read_events(reader, 1)

    assert event.data == b"2"
    assert event.id > last_id


async def test_streams_expire(writer, run_id, redis_client, settings):
    resumable_id = uuid7()
    await writer.append(run_id, [("values", b"1")])
    await writer.flush()
    assert redis_client.ttl(stream_key(run_id)) > 23 * 3600

    await writer.end(run_id, "success")
    await writer.end(resumable_id, "success", resumable=True)
    await writer.flush()

    assert 0 < redis_client.ttl(stream_key(run_id)) <= 15
    assert 15 < redis_client.ttl(stream_key(resumable_id)) <= settings.RESUMABLE_STREAM_TTL_SECONDS


async def test_large_result_is_only_in_postgresql(writer, hub, run_id):
    async with hub.open(run_id, BEGINNING) as reader:
        await writer.end(run_id, "success", result=b"x" * 300_000)
        [end] = await read_events(reader, 1)

    assert end.result is None


def test_packed_batch_has_the_id_of_each_event():
    batch = pack_batch(EventId(7, 2), [("a", b"1"), ("b", b"2"), ("end", b"3", b"r")])

    assert unpack_batch(batch).events == [
        Event(EventId(7, 0), b"a", b"1"),
        Event(EventId(7, 1), b"b", b"2"),
        Event(EventId(7, 2), b"end", b"3", b"r"),
    ]


@pytest.mark.parametrize("text", ["", "-1", "a", "1-", "1-x", "1-2-3", "1.5", "9" * 50])
def test_invalid_event_id_is_rejected(text):
    with pytest.raises(ValueError, match="not an event id"):
        EventId.parse(text)
