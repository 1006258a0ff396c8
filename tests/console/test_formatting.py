from datetime import UTC, datetime, timedelta

import pytest

from apps.web_ui import formatting

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 ms"),
        (0.0001, "<1 ms"),
        (0.084, "84 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.24, "1.24 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3600 * 3 + 60 * 12, "3 h 12 min"),
        (86_400 * 2, "2 d"),
    ],
)
def test_duration_has_three_digits_and_a_unit(seconds, expected):
    assert formatting.format_duration(seconds) == expected
    if seconds is not None:
        assert formatting.format_duration(timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (timedelta(seconds=-3), "just now"),
        (timedelta(seconds=9), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=23, minutes=59), "23 h ago"),
        (timedelta(days=6), "6 d ago"),
        (timedelta(days=40), "23 Jan"),
        (timedelta(days=400), "28 Jan 2025"),
    ],
)
def test_timestamp_is_formatted_as_its_age(age, expected):
    assert formatting.format_age(NOW - age, NOW) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1234, "1.2k"), (123_456, "123k"), (3_100_000, "3.1M")],
)
def test_compact_count_has_a_unit(value, expected):
    assert formatting.format_compact(value) == expected


def test_size_has_a_unit_and_count_has_thousands_separators():
    assert formatting.format_size(512) == "512 B"
    assert formatting.format_size(18_240) == "18.2 KB"
    assert formatting.format_size(3_400_000) == "3.4 MB"
    assert formatting.format_count(1_234_567) == "1\u202f234\u202f567"
