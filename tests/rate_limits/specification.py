"""The rate-limit table of part 8, read from the text of the specification.

The text is available only during development. Its rows are stored in `part_8.json`, which
`python -m tests.rate_limits.specification` writes; a test compares both where the text exists.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from config.env import BASE_DIR

TEXT = BASE_DIR.parent / "shared" / "SPEC.md"
STORED_ROWS = Path(__file__).with_name("part_8.json")


class SpecificationRow(NamedTuple):
    """A row of the specification; limits are (requests, seconds)."""

    match: str
    identity: str
    us: tuple[int, int]
    eu: tuple[int, int]
    category: str


def parse_rows(text: str) -> list[SpecificationRow]:
    """Parse the rows of the table under "Rate limits"."""
    part = text.partition("\n### Rate limits\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    assert head == ["Match", "Identity key", "US limit", "EU limit", "Category"]
    return [
        SpecificationRow(row[0], row[1], _limit(row[2]), _limit(row[3]), row[4]) for row in rows
    ]


def _limit(cell: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+) / (\d+)", cell)
    assert match is not None, cell
    return int(match[1]), int(match[2])


def load_stored_rows() -> list[SpecificationRow]:
    """Return the rows of the stored copy."""
    rows = json.loads(STORED_ROWS.read_text())
    return [SpecificationRow(m, i, (*us,), (*eu,), c) for m, i, us, eu, c in rows]


def load_rows() -> list[SpecificationRow]:
    """Return the rows, read from the text if it exists."""
    return parse_rows(TEXT.read_text()) if TEXT.exists() else load_stored_rows()


if __name__ == "__main__":
    lines = ",\n".join(f"  {json.dumps(row)}" for row in parse_rows(TEXT.read_text()))
    STORED_ROWS.write_text(f"[\n{lines}\n]\n")
