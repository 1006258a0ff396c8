"""Reads pages of runs.

Runs are found in one of four ways: an ordered scan if SQL covers the filter and matches are
frequent, the term index if matches are rare, a scan of the candidate intervals that rollups
indicate, or a lookup of ids. `post_filter` then evaluates the conditions that SQL cannot.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from uuid import UUID

import psycopg
from django.db import InternalError, OperationalError

from apps.core.connections import raw_cursor
from apps.trace_store import cursors
from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading.post_filter import PostFilter
from apps.trace_store.postgres.reading.prepared_query import PreparedQuery, prepare_query
from apps.trace_store.postgres.reading.pruning import derive_pruning_hint
from apps.trace_store.postgres.reading.rows import StoredRun
from apps.trace_store.postgres.reading.scan import RunScan
from apps.trace_store.postgres.reading.term_scan import TermScan
from apps.trace_store.postgres.reading.trace_totals import with_trace_totals
from apps.trace_store.postgres.rollups.dimensions import BY_NAME_AND_MODEL
from apps.trace_store.protocol import NO_PAYLOADS
from apps.trace_store.types import Payload, RunPage, RunQuery

_MAX_QUARTERS_BEFORE_TERMS = 32
"""With up to this many candidate quarter hours, scanning them is faster than the term index."""
TIMEOUT_SECONDS = 15.0
"""A search for rare runs over years fails with `QueryTooSlow` after this time."""


def query_page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None = None,
    payloads: Collection[Payload] = NO_PAYLOADS,
) -> RunPage:
    """See `RunStore.query`."""
    position = None if cursor is None else cursors.decode_cursor(cursor)
    if query.project_ids is not None and not query.project_ids:
        return RunPage([], None)
    prepared = prepare_query(workspace_id, query)
    runs, last = collect_runs(prepared, RunScan(prepared, position), limit + 1)
    rows = with_trace_totals(workspace_id, runs[:limit])
    if len(runs) > limit:
        last = runs[limit - 1]
    next_cursor = (
        None if last is None else cursors.encode_cursor(last[0].partition_time, last[0].id)
    )
    return RunPage(with_payloads(rows, payloads, lazily=True), next_cursor)


def collect_runs(
    query: PreparedQuery, scan: RunScan, limit: int
) -> tuple[list[StoredRun], StoredRun | None]:
    """Collect up to `limit` runs, and the last scanned run if the time limit was reached."""
    post_filter = PostFilter(query.workspace_id, query.query, query.where)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    results: list[StoredRun] = []
    last_scanned: StoredRun | None = None
    try:
        with statement_timeout(TIMEOUT_SECONDS):
            for rows in _scan_batches(query, scan, post_filter, limit):
                results += post_filter.filter_runs(rows)
                if len(results) >= limit:
                    return results[:limit], None
                last_scanned = rows[-1] if rows else last_scanned
                if time.monotonic() > deadline:
                    raise QueryTooSlow
    except QueryTooSlow:
        # A short page is valid and has a cursor; an empty one would look like the end.
        if results and last_scanned is not None:
            return results, last_scanned
        raise
    return results, None


def _scan_batches(
    query: PreparedQuery, scan: RunScan, post_filter: PostFilter, limit: int
) -> Iterator[Sequence[StoredRun]]:
    terms = None if query.where is None else query.where.terms
    hint = None if query.has_ids else derive_pruning_hint(query.query)
    if query.has_ids or (terms is None and hint is None):
        yield from scan.scan_all(limit)
        return
    projects = query.query.project_ids
    if not post_filter.is_needed and projects is not None and len(projects) == 1:
        frequent = scan.probe(limit)
        if len(frequent) >= limit:
            yield frequent
            return
    if terms is not None and hint is not None and not hint.bounds:
        # The term index finds runs by name and model.
        hint = None
    quarters = None if hint is None else scan.find_candidate_quarters(hint)
    if terms is None:
        yield from scan.scan_all(limit) if quarters is None else scan.scan_quarters(quarters, limit)
        return
    if hint is not None and quarters is not None and hint.rollup.granularity == BY_NAME_AND_MODEL:
        # Only rollups by name bound the measures of a name.
        yield from scan.scan_quarters(quarters, limit)
        return
    first_quarters = (
        None if quarters is None else list(islice(quarters, _MAX_QUARTERS_BEFORE_TERMS + 1))
    )
    if first_quarters is not None and len(first_quarters) <= _MAX_QUARTERS_BEFORE_TERMS:
        yield from scan.scan_quarters(first_quarters, limit)
    else:
        yield from TermScan(scan.prepared, scan.position).scan_terms(terms, limit)


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
