"""Buckets follow the clock of their time zone."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.core import errors
from apps.monitoring.buckets import Stride, edges


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def test_days_are_those_of_the_zone():
    found = edges(utc(2026, 1, 10, 3), utc(2026, 1, 11, 20), Stride(1), ZoneInfo("Asia/Kolkata"))

    assert found == [
        utc(2026, 1, 9, 18, 30),
        utc(2026, 1, 10, 18, 30),
        utc(2026, 1, 11, 18, 30),
        utc(2026, 1, 12, 18, 30),
    ]


def test_the_day_on_which_clocks_go_forward_has_23_hours():
    zone = ZoneInfo("Europe/Berlin")

    found = edges(utc(2026, 3, 28, 0), utc(2026, 3, 30, 12), Stride(1), zone)

    assert [end - begin for begin, end in itertools.pairwise(found)] == [
        timedelta(hours=24),
        timedelta(hours=23),
        timedelta(hours=24),
    ]


def test_hours_are_hours_when_clocks_go_back():
    zone = ZoneInfo("Europe/Berlin")

    found = edges(
        utc(2026, 10, 24, 22), utc(2026, 10, 25, 23), Stride(rest=timedelta(hours=1)), zone
    )

    assert len(found) == 26
    assert {end - begin for begin, end in itertools.pairwise(found)} == {timedelta(hours=1)}


def test_strides_of_hours_begin_anew_at_midnight():
    found = edges(
        utc(2026, 1, 10, 22, 30),
        utc(2026, 1, 11, 6),
        Stride(rest=timedelta(hours=5)),
        ZoneInfo("UTC"),
    )

    assert found == [
        utc(2026, 1, 10, 20),
        utc(2026, 1, 11),
        utc(2026, 1, 11, 5),
        utc(2026, 1, 11, 10),
    ]


def test_more_points_than_can_be_shown_are_refused():
    with pytest.raises(errors.Invalid, match="more than 2000 points per series"):
        edges(utc(2020, 1, 1), utc(2026, 1, 1), Stride(rest=timedelta(minutes=1)), ZoneInfo("UTC"))
