"""Execution of prepared statements, which PostgreSQL plans once per connection.

The hot paths use fixed SQL: planning a query costs as much as executing it, and building it with
the ORM costs more than both together. Inside `run_on_loop` the event loop awaits the statements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection, transaction

from apps.core import sync_bridge
from apps.core.connections import loop_database

Row = tuple[Any, ...]
Parameters = Mapping[str, Any] | Sequence[Any]


def fetch_row(statement: str, parameters: Parameters) -> Row | None:
    """The statement's first row, or None. Executed in this thread's transaction, if any.

    Django's query counters and logs include the statement.
    """
    if sync_bridge.is_on_loop():
        rows = _execute_on_loop(statement, parameters)
        return rows[0] if rows else None
    with _cursor(statement) as cursor:
        cursor.execute(statement, parameters, prepare=True)
        first: Row | None = cursor.fetchone()
    return first


def fetch_rows(statement: str, parameters: Parameters) -> list[Row]:
    """All rows of the statement."""
    if sync_bridge.is_on_loop():
        return _execute_on_loop(statement, parameters)
    with _cursor(statement) as cursor:
        cursor.execute(statement, parameters, prepare=True)
        return cursor.fetchall()


def execute(statement: str, parameters: Parameters) -> None:
    """Execute a statement and ignore its rows."""
    if sync_bridge.is_on_loop():
        sync_bridge.mark_dirty()
        _execute_on_loop(statement, parameters)
        return
    with _cursor(statement) as cursor:
        cursor.execute(statement, parameters, prepare=True)


def on_commit(callback: Callable[[], None]) -> None:
    """Call `callback` after the current transaction commits; at once outside of a transaction."""
    if sync_bridge.is_on_loop():
        callback()
    else:
        transaction.on_commit(callback, robust=True)


def _execute_on_loop(statement: str, parameters: Parameters) -> list[Row]:
    rows = sync_bridge.await_result(loop_database().fetch_rows(statement, parameters))
    if rows and not statement.lstrip().startswith("SELECT"):
        sync_bridge.mark_dirty()
    return rows


@contextlib.contextmanager
def _cursor(statement: str) -> Iterator[psycopg.Cursor[Row]]:
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    if connection.queries_logged:
        connection.queries_log.append({"sql": statement, "time": "0.000"})
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor
