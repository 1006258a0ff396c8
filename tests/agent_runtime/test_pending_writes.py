"""An organization has little on its way to Redis and PostgreSQL."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from apps.agent_runtime.runs.pending_writes import MAX_BYTES, PendingWrites

FIRST, SECOND = uuid4(), uuid4()


class Storage:
    """Writes when the test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_write = asyncio.Event()

    async def wait_written(self) -> None:
        self.calls += 1
        await self.may_write.wait()


@pytest.fixture
async def storage() -> Storage:
    return Storage()


@pytest.fixture
async def pending(storage: Storage) -> PendingWrites:
    return PendingWrites(storage.wait_written)


async def test_hosts_wait_above_the_limit_of_their_organization(
    pending: PendingWrites, storage: Storage
) -> None:
    assert not pending.add(FIRST, MAX_BYTES)
    assert pending.add(FIRST, 1)
    assert not pending.add(SECOND, MAX_BYTES)
    waits = [asyncio.create_task(pending.wait(FIRST)) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert pending.add(FIRST, 500)  # another host of the organization, while it is written
    assert [wait.done() for wait in waits] == [False] * 3

    storage.may_write.set()
    await asyncio.gather(*waits)

    assert storage.calls == 1  # for all hosts together
    assert not pending.add(FIRST, MAX_BYTES - 500)
    assert pending.add(FIRST, 1)


async def test_wait_returns_if_nothing_is_left_to_write(
    pending: PendingWrites, storage: Storage
) -> None:
    storage.may_write.set()
    pending.add(FIRST, MAX_BYTES + 1)
    await pending.wait(FIRST)
    await asyncio.sleep(0)

    await pending.wait(FIRST)

    assert storage.calls == 1


async def test_failed_write_lets_the_hosts_go() -> None:
    async def fail() -> None:
        raise OSError("no connection")

    failing = PendingWrites(fail)
    failing.add(FIRST, MAX_BYTES + 1)
    with pytest.raises(OSError, match="no connection"):
        await failing.wait(FIRST)

    assert not failing.add(FIRST, 1)
