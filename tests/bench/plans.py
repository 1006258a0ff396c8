"""The plans of the statements that some code sends, as PostgreSQL really carries them out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connection

_OURS = ("trace_store_run", "trace_store_pending_run", "trace_store_rollup", "feedback_feedback")
"""How the names of the tables begin."""
_ASKS = ("SELECT", "WITH")


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
class Recorded:
    statements: list[Statement] = field(default_factory=list)

    def plans(self) -> str:
        return "\n\n".join(
            f"-- statement {number}\n{statement.plan()}"
            for number, statement in enumerate(self.statements, start=1)
        )

    def scanned(self) -> dict[str, int]:
        """Tables that were read from end to end, with how many rows that were."""
        found: dict[str, int] = {}
        for statement in self.statements:
            plan = statement.plan("JSON")
            plan = json.loads(plan) if isinstance(plan, str) else plan
            for node in _nodes(plan[0]["Plan"]):
                if node["Node Type"] == "Seq Scan":
                    seen = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    name = node["Relation Name"]
                    found[name] = max(found.get(name, 0), int(seen))
        return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


@contextmanager
def recorded() -> Iterator[Recorded]:
    """Notes every question that the store asks of its tables meanwhile."""
    found = Recorded()
    execute = psycopg.Cursor.execute

    def noting(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
        text = str(query)
        if text.lstrip().startswith(_ASKS) and any(name in text for name in _OURS):
            found.statements.append(Statement(text, params))
        return execute(cursor, query, params, **options)

    psycopg.Cursor.execute = noting  # type: ignore[assignment,method-assign]
    try:
        yield found
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
