"""psycopg's own cursors on Django's connection: binary `COPY`, values bound by the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from django.db import InternalError, OperationalError, connection

from apps.trace_store.errors import QueryTooSlow


@contextmanager
def raw_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """A cursor whose failures are Django's, so that a broken connection is noticed and replaced."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor


@contextmanager
def statement_timeout(seconds: float) -> Iterator[None]:
    """For what somebody waits for: no statement in the block takes longer (`QueryTooSlow`).

    Nor does one have helpers, which take longer to start than a page takes.
    """
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, false),"
            " set_config('max_parallel_workers_per_gather', '0', false)",
            [f"{seconds:.0f}s"],
        )
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise QueryTooSlow from error
        raise
    finally:
        # In a transaction that just failed nothing can be said, and its end takes it back.
        with suppress(InternalError), raw_cursor() as cursor:
            cursor.execute("RESET statement_timeout; RESET max_parallel_workers_per_gather")


def sql(text: str) -> LiteralString:
    """Vouches that the statement is made of this package's own names, and values go beside it."""
    return text
