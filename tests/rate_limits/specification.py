"""The rate-limit table of part 8, read from the text of the specification.

The text lies beside the repository while it is built, and nowhere else. So what it says is kept
here too, in `part_8.json`, made by `python -m tests.rate_limits.specification`, and a test compares
the two wherever the text is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from config.env import BASE_DIR

TEXT = BASE_DIR.parent / "shared" / "SPEC.md"
KEPT = Path(__file__).with_name("part_8.json")


class Stated(NamedTuple):
    """A row as it is stated; limits are (requests, seconds)."""

    match: str
    identity: str
    us: tuple[int, int]
    eu: tuple[int, int]
    category: str


def rows_of(text: str) -> list[Stated]:
    """The rows of the table under "Rate limits"."""
    part = text.partition("\n### Rate limits\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    assert head == ["Match", "Identity key", "US limit", "EU limit", "Category"]
    return [Stated(row[0], row[1], _limit(row[2]), _limit(row[3]), row[4]) for row in rows]


def _limit(cell: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+) / (\d+)", cell)
    assert match is not None, cell
    return int(match[1]), int(match[2])


def kept() -> list[Stated]:
    """What the text said when it was last read."""
    rows = json.loads(KEPT.read_text())
    return [Stated(m, i, (*us,), (*eu,), c) for m, i, us, eu, c in rows]


def stated() -> list[Stated]:
    """The rows: from the text itself where it is."""
    return rows_of(TEXT.read_text()) if TEXT.exists() else kept()


if __name__ == "__main__":
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows_of(TEXT.read_text()))
    KEPT.write_text(f"[\n{lines}\n]\n")
