"""The table equals the specification, row by row."""

from __future__ import annotations

from apps.rate_limits.table import ROWS, Row
from tests.rate_limits import specification
from tests.rate_limits.specification import Stated


def _as_stated(row: Row) -> Stated:
    return Stated(row.match, str(row.identity), (*row.us,), (*row.eu,), row.category)


def test_each_row_equals_the_specification():
    assert [_as_stated(row) for row in ROWS] == specification.stated()


def test_stored_specification_equals_the_document():
    assert specification.kept() == specification.stated()
    assert [_as_stated(row) for row in ROWS] == specification.kept()


def test_row_names_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)
