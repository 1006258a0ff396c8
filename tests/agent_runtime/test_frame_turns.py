"""Organizations take turns with the frames of their hosts on a worker's loop."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from apps.agent_runtime.hosts.frame_turns import (
    ACTIVE_SECONDS,
    BYTES_PER_SECOND,
    CREDIT_SECONDS,
    MAX_PAUSE_SECONDS,
    FrameTurns,
)

FIRST, SECOND, THIRD = uuid4(), uuid4(), uuid4()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> FrameTurns:
    return FrameTurns(50, clock)


def flood(turns: FrameTurns, clock: Clock, owner: UUID, *, seconds: float, others: bool) -> float:
    """Let a host send as much as it is read for some time; return the seconds that were paid for.

    Each read of 256 KB takes 1 ms of the loop.
    """
    end, used, size = clock.now + seconds, 0.0, 256 * 1024
    while clock.now < end:
        pause = turns.charge(owner, size, 0.001)
        used += 0.001 + size / BYTES_PER_SECOND
        if others:
            assert turns.charge(SECOND, 100, 0.0001) == 0  # it never waits
        clock.now += pause or 0.001
    return used


def test_an_organization_alone_is_never_held_up(turns: FrameTurns, clock: Clock) -> None:
    pauses = []
    for _ in range(1_000):
        pauses.append(turns.charge(FIRST, 64 * 1024 * 1024, 1.0))
        clock.now += 0.001

    assert set(pauses) == {0.0}


def test_a_flood_gets_what_another_organization_leaves(turns: FrameTurns, clock: Clock) -> None:
    used = flood(turns, clock, FIRST, seconds=20, others=True)

    # A half of the time, less what the other one uses, and its credit once.
    assert 0.4 * 20 < used < 0.5 * 20 + CREDIT_SECONDS


def test_parts_are_equal_however_many_hosts_an_organization_has(
    turns: FrameTurns, clock: Clock
) -> None:
    used = {FIRST: 0.0, SECOND: 0.0, THIRD: 0.0}
    hosts = [FIRST] * 4 + [SECOND] * 2 + [THIRD]
    ready_at = [clock.now] * len(hosts)
    end = clock.now + 30
    while clock.now < end:
        for number, owner in enumerate(hosts):
            if ready_at[number] <= clock.now:
                ready_at[number] = clock.now + turns.charge(owner, 0, 0.005)
                used[owner] += 0.005
        clock.now += 0.005

    share = 30 * 0.5 / 3 + CREDIT_SECONDS
    assert list(used.values()) == pytest.approx([share] * 3, rel=0.25)


def test_many_that_need_little_leave_the_rest_to_one_that_needs_much(
    turns: FrameTurns, clock: Clock
) -> None:
    small = [uuid4() for _ in range(50)]
    used, ready_at, end = 0.0, clock.now, clock.now + 20
    for step in range(10_000):
        if step % 25 == 0:
            for owner in small:
                assert turns.charge(owner, 0, 0.0002) == 0  # together a fifth of the time
        if ready_at <= clock.now:
            ready_at = clock.now + turns.charge(FIRST, 0, 0.002)
            used += 0.002
        clock.now += 0.002

    assert clock.now == pytest.approx(end)
    assert 0.25 * 20 < used < 0.35 * 20


def test_a_pause_is_short_because_the_others_may_stop(turns: FrameTurns, clock: Clock) -> None:
    turns.charge(SECOND, 0, 0.0)
    assert turns.charge(FIRST, 0, 60.0) == MAX_PAUSE_SECONDS

    clock.now += ACTIVE_SECONDS + 0.1

    assert turns.charge(FIRST, 0, 1.0) == 0.0
    turns.charge(SECOND, 0, 0.0)
    assert turns.charge(FIRST, 0, 0.001) < 0.01  # the minute is not held against it


def test_frames_after_a_calm_time_have_a_credit(turns: FrameTurns, clock: Clock) -> None:
    turns.charge(SECOND, 0, 0.0)
    turns.charge(FIRST, 0, 1.0)
    clock.now += 60
    turns.charge(SECOND, 0, 0.0)

    assert turns.charge(FIRST, 0, CREDIT_SECONDS) == 0.0
    assert turns.charge(FIRST, 0, 0.01) == pytest.approx(0.01 / 0.5, rel=0.05)


def test_bytes_count_besides_the_time(turns: FrameTurns) -> None:
    turns.charge(SECOND, 0, 0.0)

    assert turns.charge(FIRST, int(BYTES_PER_SECOND * CREDIT_SECONDS), 0.0) == 0.0
    assert turns.charge(FIRST, BYTES_PER_SECOND // 100, 0.0) == pytest.approx(0.01 / 0.5, rel=0.05)
