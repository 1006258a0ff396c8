"""The table equals the specification, row by row."""

from __future__ import annotations

from apps.rate_limits.table import ROWS, Row
from tests.rate_limits import specification
from tests.rate_limits.specification import SpecificationRow


def _to_specification_row(row: Row) -> SpecificationRow:
    return SpecificationRow(row.match, str(row.identity), (*row.us,), (*row.eu,), row.category)


def test_each_row_equals_the_specification():
    assert [_to_specification_row(row) for row in ROWS] == specification.load_rows()


def test_stored_specification_equals_the_document():
    assert specification.load_stored_rows() == specification.load_rows()
    assert [_to_specification_row(row) for row in ROWS] == specification.load_stored_rows()


def test_row_names_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)
