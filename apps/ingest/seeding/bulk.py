"""Settings and order of a bulk load: what is sorted once at the end costs less than run by run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_NAME = "tracing_runterms_terms"
_SETTINGS = {
    "maintenance_work_mem": "1GB",
    "gin_pending_list_limit": "64MB",
    # A seed that is cut short by a power cut is sown again.
    "synchronous_commit": "off",
}


@contextmanager
def in_bulk() -> Iterator[None]:
    """Load quickly. Into an installation without a run the index of terms is built at the end.

    One that a seed left without the index, because it was killed, gets it back from the next one.
    """
    with connection.cursor() as cursor:
        for name, value in _SETTINGS.items():
            cursor.execute(f"SET {name} = '{value}'")
    try:
        # A test is one transaction, which would hold the table until its end.
        if connection.in_atomic_block:
            yield
        elif _has_runs():
            _build_index()
            yield
        else:
            with _index_built_last():
                yield
    finally:
        with connection.cursor() as cursor:
            for name in _SETTINGS:
                cursor.execute(f"RESET {name}")


def _has_runs() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM tracing_runterms)")
        found: bool = cursor.fetchone()[0]
        return found


@contextmanager
def _index_built_last() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX IF EXISTS {_NAME}")
    try:
        yield
    finally:
        _build_index()


def _build_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX IF NOT EXISTS {_NAME} ON tracing_runterms USING gin (terms)")
