"""Appends many finished runs by `COPY`, in the state after post-processing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from django.db import connection

from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.postprocess.term_index import copy_terms, encode_terms
from apps.trace_store.postgres.postprocess.trace_totals import TOTAL_TYPES
from apps.trace_store.postgres.writing.binary_copy import copy_rows
from apps.trace_store.postgres.writing.run_keys import KEY_COLUMNS
from apps.trace_store.postgres.writing.write_runs import PAYLOAD_COLUMNS, RUN_COLUMNS
from apps.trace_store.run_writes import FinishedRun

_COLUMNS = RUN_COLUMNS | {f"sum_{name}": kind for name, kind in TOTAL_TYPES.items()}
_TERM_INDEXES = {name: f"trace_store_run_terms_{name}" for name in ("terms", "words")}
_SETTINGS = {
    "maintenance_work_mem": "1GB",
    "gin_pending_list_limit": "64MB",
    # After a crash the runs are loaded again.
    "synchronous_commit": "off",
}


def append_runs(workspace_id: UUID, runs: Sequence[FinishedRun]) -> None:
    """Append the runs in the caller's transaction. They must not exist."""
    copy_rows("trace_store_run_key", KEY_COLUMNS, [run.columns for run in runs])
    copy_rows("trace_store_run", _COLUMNS, [run.columns for run in runs])
    payloads = [
        {name: run.columns[name] for name in (*KEY_COLUMNS, "is_created")}
        | {str(payload): value for payload, value in run.payloads.items()}
        for run in runs
    ]
    copy_rows("trace_store_run_payload", PAYLOAD_COLUMNS, payloads)
    copy_terms(
        (
            workspace_id,
            run.columns["project_id"],
            run.columns["partition_time"],
            run.columns["id"],
            *encode_terms(workspace_id, run.terms),
        )
        for run in runs
    )


@contextmanager
def bulk_load() -> Iterator[None]:
    """Set options for a bulk load; with empty tables, build the term indexes at the end.

    If a load was killed before it built them, the next load does.
    """
    with connection.cursor() as cursor:
        for name, value in _SETTINGS.items():
            cursor.execute(f"SET {name} = '{value}'")
    try:
        # A test is one transaction, which would lock the table until its end.
        if connection.in_atomic_block:
            yield
        elif _has_runs():
            _build_indexes()
            yield
        else:
            with _deferred_indexes():
                yield
    finally:
        with connection.cursor() as cursor:
            for name in _SETTINGS:
                cursor.execute(f"RESET {name}")
    _analyze()


def _has_runs() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM trace_store_run_terms)")
        has_runs: bool = cursor.fetchone()[0]
        return has_runs


@contextmanager
def _deferred_indexes() -> Iterator[None]:
    with connection.cursor() as cursor:
        for index in _TERM_INDEXES.values():
            cursor.execute(f"DROP INDEX IF EXISTS {index}")
    try:
        yield
    finally:
        _build_indexes()


def _build_indexes() -> None:
    with connection.cursor() as cursor:
        for column, index in _TERM_INDEXES.items():
            cursor.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON trace_store_run_terms USING gin ({column})"
            )


def _analyze() -> None:
    """Update planner statistics and the visibility map, which autovacuum would do later."""
    # VACUUM cannot run in the transaction of a test.
    verb = "ANALYZE" if connection.in_atomic_block else "VACUUM (ANALYZE)"
    with connection.cursor() as cursor:
        for table in partitions.TABLES:
            cursor.execute(f"{verb} {table}")
