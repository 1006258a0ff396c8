"""The time limit of queries that a client waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.db import InternalError, OperationalError

from apps.core.raw_sql import raw_cursor
from apps.trace_store.errors import QueryTooSlow


@contextmanager
def statement_timeout(seconds: float) -> Iterator[None]:
    """Limit each statement in the block to `seconds`; longer ones raise `QueryTooSlow`.

    Parallel workers are disabled, because starting them takes longer than reading a page.
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
        # A failed transaction accepts no statement; its rollback resets the settings.
        with suppress(InternalError), raw_cursor() as cursor:
            cursor.execute("RESET statement_timeout; RESET max_parallel_workers_per_gather")
