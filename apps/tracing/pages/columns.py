"""Columns of the run list: the available ones and a user's selection."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

COOKIE = "slipway_columns"
_MAX_COLUMNS = 24
_MAX_KEY_LENGTH = 120
MAX_COOKIE_LENGTH = _MAX_COLUMNS * _MAX_KEY_LENGTH


@dataclass(frozen=True)
class Column:
    """`key` identifies the column; `metadata.…` and `feedback.…` name a key of the run."""

    key: str
    label: str
    css: str = ""
    narrow: str = "hide"
    """Layout below 48 rem: `hide`, `line` (a separate line) or `""` (unchanged)."""
    is_number: bool = False

    @property
    def kind(self) -> str:
        return self.key.partition(".")[0]

    @property
    def inner(self) -> str:
        """Return the metadata or feedback key after the dot."""
        return self.key.partition(".")[2]


STANDARD_COLUMNS = {
    column.key: column
    for column in (
        Column("name", "Name", "cell-name", narrow=""),
        Column("input", "Input", narrow="line"),
        Column("output", "Output", narrow="line"),
        Column("error", "Error", narrow="line"),
        Column("start", "Start", "when", narrow=""),
        Column("latency", "Latency", "num", narrow="", is_number=True),
        Column("first_token", "First token", "num", is_number=True),
        Column("tokens", "Tokens", "num col-tokens", is_number=True),
        Column("cost", "Cost", "num num-wide col-cost", is_number=True),
        Column("tags", "Tags", "cell-tags"),
        Column("feedback", "Feedback", "cell-tags col-feedback"),
        Column("model", "Model", "cell-short"),
        Column("thread", "Thread", "cell-short"),
        Column("run_type", "Type", "cell-short"),
    )
}
DEFAULT_COLUMNS = ("name", "input", "output", "start", "latency", "tokens", "cost", "feedback")
REQUIRED_COLUMN = "name"
"""The column with the link to the run, which cannot be removed."""


def find_column(key: str) -> Column | None:
    kind, _, inner = key.partition(".")
    if key in STANDARD_COLUMNS:
        return STANDARD_COLUMNS[key]
    if kind in ("metadata", "feedback") and inner and len(key) <= _MAX_KEY_LENGTH:
        return Column(key, inner, "cell-short")
    return None


def parse_columns(text: str | None) -> list[Column]:
    """Parse the columns of a query parameter or cookie; default columns if empty or invalid."""
    try:
        keys = json.loads(text) if text else None
    except (ValueError, RecursionError):
        keys = None
    return columns_by_key(keys) if isinstance(keys, list) else columns_by_key(DEFAULT_COLUMNS)


def columns_by_key(keys: Iterable[object]) -> list[Column]:
    """Return the columns with these keys, without duplicates; unknown keys are ignored."""
    results = [column for key in keys if isinstance(key, str) and (column := find_column(key))]
    unique = list({column.key: column for column in results}.values())[:_MAX_COLUMNS]
    if all(column.key != REQUIRED_COLUMN for column in unique):
        unique.insert(0, STANDARD_COLUMNS[REQUIRED_COLUMN])
    return unique


def available_columns(visible: Iterable[Column]) -> list[Column]:
    """Return the standard columns that are not shown."""
    visible_keys = {column.key for column in visible}
    return [column for key, column in STANDARD_COLUMNS.items() if key not in visible_keys]


def serialize_columns(columns: Iterable[Column]) -> str:
    return json.dumps([column.key for column in columns], separators=(",", ":"))


def serialize_cookie(columns: Iterable[Column]) -> str:
    """Return the cookie's value; empty for the default columns."""
    text = serialize_columns(columns)
    return "" if text == serialize_columns(columns_by_key(DEFAULT_COLUMNS)) else text
