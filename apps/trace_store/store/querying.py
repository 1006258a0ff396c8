"""A page of the runs that a query means.

Four ways lead there: through the runs in order, when SQL decides and what is asked for is
frequent; through the index of terms, when it is rare; through the stretches of time in which
rollups leave room for it; by ids, when there are some. Whatever the way, `deciding` has the last
word on what SQL leaves open.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from uuid import UUID

from apps.trace_store.store import cursors
from apps.trace_store.store.conditions import Asked, ask
from apps.trace_store.store.payloads import with_payloads
from apps.trace_store.store.post_filter import Decider
from apps.trace_store.store.pruning import hint_of
from apps.trace_store.store.raw import patience
from apps.trace_store.store.rollup_dimensions import NAMES
from apps.trace_store.store.rows import Stored
from apps.trace_store.store.scan import Walk
from apps.trace_store.store.summing import with_sums
from apps.trace_store.store.term_scan import TermWalk
from apps.trace_store.store.types import Page, Payload, RunQuery
from apps.tracing.errors import QueryTooSlow

_FEW_QUARTERS = 32
"""Of an hour: so few are walked through sooner than the index of terms finds what is frequent."""
PATIENCE = 15.0
"""Seconds. Who asks for something rare in years of runs is told to ask for less."""


def page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None,
    payloads: Collection[Payload],
) -> Page:
    """See `RunStore.query`."""
    place = None if cursor is None else cursors.decode(cursor)
    if query.project_ids is not None and not query.project_ids:
        return Page([], None)
    asked = ask(workspace_id, query)
    found, last = _found(asked, Walk(asked, place), limit + 1)
    rows = with_sums(workspace_id, found[:limit])
    if len(found) > limit:
        last = found[limit - 1]
    next_cursor = None if last is None else cursors.encode(last[0].placed_at, last[0].id)
    return Page(with_payloads(rows, payloads), next_cursor)


def _found(asked: Asked, walk: Walk, wanted: int) -> tuple[list[Stored], Stored | None]:
    """Up to as many runs as wanted, and where it goes on if time was over before that."""
    decider = Decider(asked.workspace_id, asked.query, asked.where)
    deadline = time.monotonic() + PATIENCE
    found: list[Stored] = []
    last: Stored | None = None
    try:
        with patience(PATIENCE):
            for rows in _ways(asked, walk, decider, wanted):
                found += decider.meant(rows)
                if len(found) >= wanted:
                    return found[:wanted], None
                last = rows[-1] if rows else last
                if time.monotonic() > deadline:
                    raise QueryTooSlow
    except QueryTooSlow:
        # A page that is not full is a page, and leads on; an empty one would look like the end.
        if found and last is not None:
            return found, last
        raise
    return found, None


def _ways(asked: Asked, walk: Walk, decider: Decider, wanted: int) -> Iterator[Sequence[Stored]]:
    terms = None if asked.where is None else asked.where.terms
    hint = None if asked.is_pointed else hint_of(asked.query)
    if asked.is_pointed or (terms is None and hint is None):
        yield from walk.all(wanted)
        return
    projects = asked.query.project_ids
    if not decider.is_needed and projects is not None and len(projects) == 1:
        frequent = walk.probe(wanted)
        if len(frequent) >= wanted:
            yield frequent
            return
    if terms is not None and hint is not None and not hint.bounds:
        # By its name and model a run is found in the index.
        hint = None
    quarters = None if hint is None else walk.promising(hint)
    if terms is None:
        yield from walk.all(wanted) if quarters is None else walk.by_quarters(quarters, wanted)
        return
    if hint is not None and quarters is not None and hint.rolled.cut == NAMES:
        # Nothing knows better than rows of the name where its numbers are.
        yield from walk.by_quarters(quarters, wanted)
        return
    few = None if quarters is None else list(islice(quarters, _FEW_QUARTERS + 1))
    if few is not None and len(few) <= _FEW_QUARTERS:
        yield from walk.by_quarters(few, wanted)
    else:
        yield from TermWalk(walk.asked, walk.place).rows(terms, wanted)
