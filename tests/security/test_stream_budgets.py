"""Runs that stream without end do not fill the Redis that all tenants share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from apps.agent_server.streaming import stream_budget
from apps.agent_server.streaming.hub import StreamHub
from apps.agent_server.streaming.streams import BEGINNING, stream_key
from apps.agent_server.streaming.writer import StreamWriter
from apps.core.ids import uuid7

KB, MB = 1024, 1024 * 1024
BATCH = b'"' + os.urandom(50 * KB).hex().encode() + b'"'


@pytest.fixture
async def writer(settings: Any, redis_client: Any) -> AsyncIterator[StreamWriter]:
    settings.STREAM_BYTES_PER_RUN = 1 * MB
    settings.STREAM_BYTES_PER_DEPLOYMENT = 3 * MB
    settings.STREAM_BYTES = 6 * MB
    writer = StreamWriter(settings.REDIS_URL)
    yield writer
    await writer.aclose()


async def attack(writer: StreamWriter, deployment: UUID, batches: int = 40) -> UUID:
    """Stream 4 MB in a new run of the deployment."""
    run_id = uuid7()
    writer.start_stream(
        run_id,
        [("metadata", b"{}")],
        thread=uuid7(),
        deployment=deployment,
        graph_id="graph",
        is_first=True,
        resumable=False,
    )
    for _ in range(batches):
        await writer.append(run_id, [("values", BATCH)])
        await writer.flush()
    return run_id


def stored_bytes(redis_client: Any, run_id: UUID) -> int:
    return sum(len(fields[b"b"]) for _, fields in redis_client.xrange(stream_key(run_id)))


async def test_run_keeps_its_newest_events_within_its_budget(
    writer: StreamWriter, redis_client: Any
) -> None:
    run_id = await attack(writer, uuid7())

    assert 800 * KB < stored_bytes(redis_client, run_id) <= MB


async def test_deployment_stays_within_its_budget_and_spares_others(
    writer: StreamWriter, redis_client: Any
) -> None:
    deployment = uuid7()
    runs = [await attack(writer, deployment) for _ in range(8)]
    other = await attack(writer, uuid7())
    for run_id in runs:
        await writer.end(run_id, "success", result=b"{}")
    await writer.flush()

    assert sum(stored_bytes(redis_client, run_id) for run_id in runs) <= 3 * MB + 8 * 16 * KB
    assert stored_bytes(redis_client, other) > 800 * KB
    assert all(redis_client.exists(stream_key(run_id)) for run_id in runs)  # with their end


async def test_many_deployments_stay_within_the_total(
    writer: StreamWriter, redis_client: Any
) -> None:
    runs = [await attack(writer, uuid7(), batches=15) for _ in range(12)]

    assert sum(stored_bytes(redis_client, run_id) for run_id in runs) <= 6 * MB + 12 * 16 * KB


async def test_ended_streams_count_until_they_expire(
    writer: StreamWriter, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = uuid7()
    for _ in range(4):
        await writer.end(await attack(writer, deployment), "success")
    full = await attack(writer, deployment)
    assert stored_bytes(redis_client, full) < 100 * KB

    later = stream_budget.time.monotonic() + 60
    monkeypatch.setattr(stream_budget.time, "monotonic", lambda: later)

    assert stored_bytes(redis_client, await attack(writer, deployment)) > 800 * KB


async def test_connected_reader_gets_every_event_beyond_the_budget(
    writer: StreamWriter, settings: Any
) -> None:
    settings.STREAM_BYTES_PER_RUN = 20 * KB
    small = StreamWriter(settings.REDIS_URL)
    hub = StreamHub(settings.REDIS_URL)
    await hub._link.connect()
    run_id = uuid7()
    async with hub.open(run_id, BEGINNING) as reader:
        names = []
        for number in range(5):
            await small.append(run_id, [(f"values{number}", BATCH)])
        await small.end(run_id, "success")
        while b"end" not in names:
            names += [event.name for event in await reader.next()]
    await small.aclose()
    await hub.aclose()

    assert names == [*(b"values%d" % number for number in range(5)), b"end"]


async def test_wait_returns_when_what_is_queued_is_in_redis(
    writer: StreamWriter, redis_client: Any
) -> None:
    runs = [uuid7() for _ in range(3)]
    for run_id in runs:
        writer.write(run_id, [("values", BATCH)])

    await writer.wait_sent()

    assert [redis_client.xlen(stream_key(run_id)) for run_id in runs] == [1, 1, 1]
    await writer.wait_sent()  # nothing is queued


async def test_wait_returns_without_redis() -> None:
    writer = StreamWriter("redis://127.0.0.1:1/0")
    writer.write(uuid7(), [("values", BATCH)])

    async with asyncio.timeout(20):
        await writer.wait_sent()
        await writer.wait_sent()
    await writer.aclose()
