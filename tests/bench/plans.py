"""Query plans of the statements that a piece of code sends, from EXPLAIN ANALYZE."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connection

_TABLE_PREFIXES = (
    "trace_store_run",
    "trace_store_pending_run",
    "trace_store_rollup",
    "feedback_feedback",
)

_READ_KEYWORDS = ("SELECT", "WITH")


@dataclass
class Statement:
    text: str
    values: Any

    def plan(self, form: str = "TEXT") -> Any:
        with connection.cursor() as django_cursor:
            raw = psycopg.Cursor(django_cursor.connection)
            raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT {form}) {self.text}", self.values)
            rows = [row[0] for row in raw.fetchall()]
        return "\n".join(rows) if form == "TEXT" else rows[0]


@dataclass
class StatementRecorder:
    statements: list[Statement] = field(default_factory=list)

    def plans(self) -> str:
        return "\n\n".join(
            f"-- statement {number}\n{statement.plan()}"
            for number, statement in enumerate(self.statements, start=1)
        )

    def scanned(self) -> dict[str, int]:
        """Return the tables with sequential scans and the most rows that one scan read."""
        rows_by_table: dict[str, int] = {}
        for statement in self.statements:
            plan = statement.plan("JSON")
            plan = json.loads(plan) if isinstance(plan, str) else plan
            for node in _nodes(plan[0]["Plan"]):
                if node["Node Type"] == "Seq Scan":
                    row_count = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    name = node["Relation Name"]
                    rows_by_table[name] = max(rows_by_table.get(name, 0), int(row_count))
        return rows_by_table


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


@contextmanager
def record_statements(tables: Sequence[str] = _TABLE_PREFIXES) -> Iterator[StatementRecorder]:
    """Record the reading statements of this context that name one of the tables.

    A name may be the beginning of one; by default those of the trace store.
    """
    recorder = StatementRecorder()
    execute = psycopg.Cursor.execute

    def execute_recorded(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
        text = str(query)
        if text.lstrip().startswith(_READ_KEYWORDS) and any(name in text for name in tables):
            recorder.statements.append(Statement(text, params))
        return execute(cursor, query, params, **options)

    psycopg.Cursor.execute = execute_recorded  # type: ignore[assignment,method-assign]
    try:
        yield recorder
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
