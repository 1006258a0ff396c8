"""The columns of the list of runs: which there are, and which a person chose, in what order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

COOKIE = "slipway_columns"
_MOST = 24
_LONGEST = 120
LONGEST_COLUMNS = _MOST * _LONGEST


@dataclass(frozen=True)
class Column:
    """`key` names it; `metadata.…` and `feedback.…` name what to look for in the run."""

    key: str
    label: str
    css: str = ""
    narrow: str = "hide"
    """What becomes of it below 48 rem: `hide`, `line` (a line of its own) or `""` (stays)."""
    is_number: bool = False

    @property
    def kind(self) -> str:
        return self.key.partition(".")[0]

    @property
    def inner(self) -> str:
        """What comes after the point: a key of metadata or feedback."""
        return self.key.partition(".")[2]


STANDARD = {
    column.key: column
    for column in (
        Column("name", "Name", "cell-name", narrow=""),
        Column("input", "Input", narrow="line"),
        Column("output", "Output", narrow="line"),
        Column("error", "Error", narrow="line"),
        Column("start", "Start", "when", narrow=""),
        Column("latency", "Latency", "num", narrow="", is_number=True),
        Column("first_token", "First token", "num", is_number=True),
        Column("tokens", "Tokens", "num", is_number=True),
        Column("cost", "Cost", "num num-wide", is_number=True),
        Column("tags", "Tags", "cell-tags"),
        Column("feedback", "Feedback", "cell-tags"),
        Column("model", "Model", "cell-short"),
        Column("thread", "Thread", "cell-short"),
        Column("run_type", "Type", "cell-short"),
    )
}
USUAL = ("name", "input", "output", "start", "latency", "tokens", "cost", "feedback")
NEEDED = "name"
"""It carries the link, so it cannot be left out."""


def find(key: str) -> Column | None:
    kind, _, inner = key.partition(".")
    if key in STANDARD:
        return STANDARD[key]
    if kind in ("metadata", "feedback") and inner and len(key) <= _LONGEST:
        return Column(key, inner, "cell-short")
    return None


def chosen(said: str | None) -> list[Column]:
    """The columns that an address or a cookie names, in its order; the usual ones without."""
    try:
        keys = json.loads(said) if said else None
    except (ValueError, RecursionError):
        keys = None
    return named(keys) if isinstance(keys, list) else named(USUAL)


def named(keys: Iterable[object]) -> list[Column]:
    """The columns of these keys, each once; what nobody knows is left out."""
    found = [column for key in keys if isinstance(key, str) and (column := find(key))]
    once = list({column.key: column for column in found}.values())[:_MOST]
    if all(column.key != NEEDED for column in once):
        once.insert(0, STANDARD[NEEDED])
    return once


def offered(now: Iterable[Column]) -> list[Column]:
    """The standard columns that are not shown."""
    shown = {column.key for column in now}
    return [column for key, column in STANDARD.items() if key not in shown]


def as_text(columns: Iterable[Column]) -> str:
    return json.dumps([column.key for column in columns], separators=(",", ":"))


def as_cookie(columns: Iterable[Column]) -> str:
    """Nothing for the usual ones."""
    text = as_text(columns)
    return "" if text == as_text(named(USUAL)) else text
