"""Statements that PostgreSQL parses and plans once for each connection.

The queries of the hot paths are written out for it: planning costs as much as running them, and
building them anew costs more than both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection


def row(statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row of the statement, inside this thread's transaction if there is one.

    Django's counters and logs see it like any query.
    """
    _make_ready(statement)
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, parameters, prepare=True)
        found: tuple[Any, ...] | None = cursor.fetchone()
    return found


def rows(statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows of the statement."""
    _make_ready(statement)
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, parameters, prepare=True)
        return cursor.fetchall()


def perform(statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> None:
    """Execute a statement for what it does."""
    _make_ready(statement)
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, parameters, prepare=True)


def _make_ready(statement: str) -> None:
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    if connection.queries_logged:
        connection.queries_log.append({"sql": statement, "time": "0.000"})
