"""Fire times of crons: fields, seconds, time zones and the two clock changes of a year."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.agent_server.schedules import InvalidSchedule, UnknownTimezone, next_fire_time, parse_zone

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def next_fire_times(schedule, timezone, after, count):
    times = []
    for _ in range(count):
        after = next_fire_time(schedule, timezone, after)
        times.append(after.strftime("%d %H:%M:%S"))
    return times


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/15 * * * *", ["01 12:15:00", "01 12:30:00"]),
        ("0 9 * * *", ["02 09:00:00", "03 09:00:00"]),
        ("0 9 * * mon-fri", ["02 09:00:00", "05 09:00:00"]),
        ("* * * * * */20", ["01 12:00:20", "01 12:00:40"]),
        ("30 12 * * * 5", ["01 12:30:05", "02 12:30:05"]),
        ("@daily", ["02 00:00:00", "03 00:00:00"]),
        ("@Hourly", ["01 13:00:00", "01 14:00:00"]),
        ("0 0 L * *", ["31 00:00:00", "28 00:00:00"]),
    ],
)
def test_schedule_fields_are_parsed(schedule, expected):
    assert next_fire_times(schedule, None, NOON, 2) == expected


def test_schedule_is_evaluated_in_its_time_zone():
    assert next_fire_times("0 9 * * *", "America/New_York", NOON, 1) == ["01 14:00:00"]
    assert next_fire_times("0 9 * * *", "Asia/Tokyo", NOON, 1) == ["02 00:00:00"]


def test_skipped_hour_fires_right_after_the_clock_change():
    before = datetime(2026, 3, 28, tzinfo=UTC)

    assert next_fire_times("30 2 * * *", "Europe/Berlin", before, 3) == [
        "28 01:30:00",
        "29 01:00:00",  # 03:00 there: 02:30 does not exist
        "30 00:30:00",
    ]


def test_repeated_hour_fires_once():
    before = datetime(2026, 10, 24, tzinfo=UTC)

    assert next_fire_times("30 2 * * *", "Europe/Berlin", before, 3) == [
        "24 00:30:00",
        "25 00:30:00",
        "26 01:30:00",
    ]


def test_every_minute_schedule_fires_through_a_clock_change():
    before = datetime(2026, 10, 25, 0, 58, tzinfo=UTC)

    assert next_fire_times("* * * * *", "Europe/Berlin", before, 3) == [
        "25 00:59:00",
        "25 01:00:00",
        "25 01:01:00",
    ]


@pytest.mark.parametrize(
    "schedule",
    ["", "x", "* * * *", "* * * * * * *", "60 * * * *", "0 0 30 2 *", "@reboot", "9" * 5000],
)
def test_invalid_schedule_is_rejected(schedule):
    with pytest.raises(InvalidSchedule):
        next_fire_time(schedule, None, NOON)


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "Europe", "../../etc/passwd", "/etc/localtime", "a\0b", "x" * 300]
)
def test_invalid_time_zone_is_rejected(name):
    with pytest.raises(UnknownTimezone):
        parse_zone(name)


@pytest.mark.exhaustive
@given(
    st.sampled_from(["*/7 * * * *", "13 3 * * *", "* * * * * */13", "0 2 29 * *"]),
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", None]),
    st.integers(0, 20 * 366 * 24 * 3600).map(lambda seconds: NOON + timedelta(seconds=seconds)),
)
def test_next_times_always_increase(schedule, timezone, after):
    times = [after]
    for _ in range(5):
        times.append(next_fire_time(schedule, timezone, times[-1]))

    assert all(earlier < later for earlier, later in pairwise(times))


@pytest.mark.exhaustive
@given(st.text(max_size=30))
def test_any_text_is_parsed_or_rejected(text):
    with contextlib.suppress(InvalidSchedule):
        assert next_fire_time(text, None, NOON) > NOON
