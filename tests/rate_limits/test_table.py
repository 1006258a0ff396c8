"""The table is the specification's, row for row."""

from __future__ import annotations

from apps.rate_limits.table import ROWS, Row
from tests.rate_limits import specification
from tests.rate_limits.specification import Stated


def _as_stated(row: Row) -> Stated:
    return Stated(row.match, str(row.identity), (*row.us,), (*row.eu,), row.category)


def test_each_row_is_as_the_specification_states_it():
    assert [_as_stated(row) for row in ROWS] == specification.stated()


def test_what_is_kept_of_the_specification_is_what_it_states():
    assert specification.kept() == specification.stated()
    assert [_as_stated(row) for row in ROWS] == specification.kept()
    assert len(specification.kept()) == 29


def test_each_row_has_a_name_of_its_own():
    assert len({row.name for row in ROWS}) == len(ROWS)
