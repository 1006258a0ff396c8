"""Reads pages of runs.

There are four ways to find runs: scan them in order if SQL decides and matches are frequent; use
the term index if matches are rare; scan the intervals that rollups leave as candidates; look up
ids. `post_filter` then decides what SQL leaves open.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from uuid import UUID

from apps.trace_store import cursors
from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.postgres.database import statement_timeout
from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading.post_filter import PostFilter
from apps.trace_store.postgres.reading.prepared_query import PreparedQuery, prepare_query
from apps.trace_store.postgres.reading.pruning import pruning_hint
from apps.trace_store.postgres.reading.rows import StoredRun
from apps.trace_store.postgres.reading.scan import RunScan
from apps.trace_store.postgres.reading.term_scan import TermScan
from apps.trace_store.postgres.reading.trace_totals import with_trace_totals
from apps.trace_store.postgres.rollups.dimensions import BY_NAME_AND_MODEL
from apps.trace_store.types import Payload, RunPage, RunQuery

_MAX_QUARTERS_BEFORE_TERMS = 32
"""With up to this many candidate quarter hours, scanning them beats the term index."""
TIMEOUT_SECONDS = 15.0
"""A search for rare runs over years fails with `QueryTooSlow` after this time."""


def query_page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None,
    payloads: Collection[Payload],
) -> RunPage:
    """See `RunStore.query`."""
    place = None if cursor is None else cursors.decode_cursor(cursor)
    if query.project_ids is not None and not query.project_ids:
        return RunPage([], None)
    prepared = prepare_query(workspace_id, query)
    result, last = _collect(prepared, RunScan(prepared, place), limit + 1)
    rows = with_trace_totals(workspace_id, result[:limit])
    if len(result) > limit:
        last = result[limit - 1]
    next_cursor = (
        None if last is None else cursors.encode_cursor(last[0].partition_time, last[0].id)
    )
    return RunPage(with_payloads(rows, payloads), next_cursor)


def _collect(
    query: PreparedQuery, walk: RunScan, wanted: int
) -> tuple[list[StoredRun], StoredRun | None]:
    """Collect up to `wanted` runs, and the last scanned run if the time limit was reached."""
    decider = PostFilter(query.workspace_id, query.query, query.where)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    results: list[StoredRun] = []
    last: StoredRun | None = None
    try:
        with statement_timeout(TIMEOUT_SECONDS):
            for rows in _scan_batches(query, walk, decider, wanted):
                results += decider.meant(rows)
                if len(results) >= wanted:
                    return results[:wanted], None
                last = rows[-1] if rows else last
                if time.monotonic() > deadline:
                    raise QueryTooSlow
    except QueryTooSlow:
        # A short page is valid and has a cursor; an empty one would look like the end.
        if results and last is not None:
            return results, last
        raise
    return results, None


def _scan_batches(
    query: PreparedQuery, walk: RunScan, decider: PostFilter, wanted: int
) -> Iterator[Sequence[StoredRun]]:
    terms = None if query.where is None else query.where.terms
    hint = None if query.is_pointed else pruning_hint(query.query)
    if query.is_pointed or (terms is None and hint is None):
        yield from walk.all(wanted)
        return
    projects = query.query.project_ids
    if not decider.is_needed and projects is not None and len(projects) == 1:
        frequent = walk.probe(wanted)
        if len(frequent) >= wanted:
            yield frequent
            return
    if terms is not None and hint is not None and not hint.bounds:
        # The term index finds runs by name and model.
        hint = None
    quarters = None if hint is None else walk.promising(hint)
    if terms is None:
        yield from walk.all(wanted) if quarters is None else walk.by_quarters(quarters, wanted)
        return
    if hint is not None and quarters is not None and hint.rollup.granularity == BY_NAME_AND_MODEL:
        # Only rollups by name know where the values of a name are.
        yield from walk.by_quarters(quarters, wanted)
        return
    few = None if quarters is None else list(islice(quarters, _MAX_QUARTERS_BEFORE_TERMS + 1))
    if few is not None and len(few) <= _MAX_QUARTERS_BEFORE_TERMS:
        yield from walk.by_quarters(few, wanted)
    else:
        yield from TermScan(walk.prepared, walk.place).rows(terms, wanted)
