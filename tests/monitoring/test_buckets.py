"""Buckets follow the clock of their time zone."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.core import errors
from apps.monitoring.buckets import Stride, bucket_edges


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def test_day_buckets_begin_at_midnight_of_the_time_zone():
    bounds = bucket_edges(
        utc(2026, 1, 10, 3), utc(2026, 1, 11, 20), Stride(1), ZoneInfo("Asia/Kolkata")
    )

    assert bounds == [
        utc(2026, 1, 9, 18, 30),
        utc(2026, 1, 10, 18, 30),
        utc(2026, 1, 11, 18, 30),
        utc(2026, 1, 12, 18, 30),
    ]


def test_day_on_which_clocks_go_forward_has_23_hours():
    zone = ZoneInfo("Europe/Berlin")

    bounds = bucket_edges(utc(2026, 3, 28, 0), utc(2026, 3, 30, 12), Stride(1), zone)

    assert [end - begin for begin, end in itertools.pairwise(bounds)] == [
        timedelta(hours=24),
        timedelta(hours=23),
        timedelta(hours=24),
    ]


def test_hour_buckets_stay_one_hour_when_clocks_go_back():
    zone = ZoneInfo("Europe/Berlin")

    bounds = bucket_edges(
        utc(2026, 10, 24, 22), utc(2026, 10, 25, 23), Stride(duration=timedelta(hours=1)), zone
    )

    assert len(bounds) == 26
    assert {end - begin for begin, end in itertools.pairwise(bounds)} == {timedelta(hours=1)}


def test_hour_buckets_restart_at_midnight():
    bounds = bucket_edges(
        utc(2026, 1, 10, 22, 30),
        utc(2026, 1, 11, 6),
        Stride(duration=timedelta(hours=5)),
        ZoneInfo("UTC"),
    )

    assert bounds == [
        utc(2026, 1, 10, 20),
        utc(2026, 1, 11),
        utc(2026, 1, 11, 5),
        utc(2026, 1, 11, 10),
    ]


def test_more_than_2000_buckets_are_rejected():
    with pytest.raises(errors.Invalid, match="more than 2000 points per series"):
        bucket_edges(
            utc(2020, 1, 1), utc(2026, 1, 1), Stride(duration=timedelta(minutes=1)), ZoneInfo("UTC")
        )
