"""Reads pages of runs in the order of a value: latency, tokens, cost or name.

No index is kept for these orders (docs/adr/0028). A page by name reads the names from rollups and
lists each name's runs; `value_order` reads the runs of the other orders.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.core.errors import InvalidCursor
from apps.trace_store import cursors
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.cursors import decode_sort_cursor, encode_sort_cursor
from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.filters import all_of
from apps.trace_store.filters.fields import BY_NAME
from apps.trace_store.filters.nodes import Comparison
from apps.trace_store.filters.nodes import Condition as FieldCondition
from apps.trace_store.filters.query_analysis import extract_root_condition
from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading import pages
from apps.trace_store.postgres.reading.pages import TIMEOUT_SECONDS, statement_timeout
from apps.trace_store.postgres.reading.prepared_query import (
    Condition,
    PreparedQuery,
    prepare_query,
)
from apps.trace_store.postgres.reading.rows import StoredRun
from apps.trace_store.postgres.reading.scan import RunScan
from apps.trace_store.postgres.reading.trace_totals import with_trace_totals
from apps.trace_store.postgres.reading.value_order import VALUES, SortPosition, ValueReader
from apps.trace_store.postgres.statistics import run_metrics
from apps.trace_store.protocol import NO_PAYLOADS
from apps.trace_store.types import Payload, RunPage, RunQuery, RunSort, SortField

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore

_MAX_NAMES = 10_000


def query_page(
    store: RunStore,
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None = None,
    payloads: Collection[Payload] = NO_PAYLOADS,
) -> RunPage:
    """See `RunStore.query`."""
    if query.sort is None:
        return pages.query_page(workspace_id, query, limit=limit, cursor=cursor, payloads=payloads)
    if query.project_ids is not None and not query.project_ids:
        return RunPage([], None)
    position = None if cursor is None else decode_sort_cursor(cursor, query.sort)
    if query.sort.field is SortField.NAME:
        return _page_by_name(store, workspace_id, query, limit, position, payloads)
    return _page_by_value(workspace_id, query, limit, position, payloads)


# By name


def _page_by_name(  # noqa: PLR0917  (private, called once)
    store: RunStore,
    workspace_id: UUID,
    query: RunQuery,
    limit: int,
    position: list[str] | None,
    payloads: Collection[Payload],
) -> RunPage:
    """List the names in order, and the runs of a name newest first."""
    sort = query.sort
    if sort is None:
        raise AssertionError("a page by name has a sort")
    query = replace(query, sort=None)
    first_name, inner_cursor = (None, None) if position is None else (position[0], position[1])
    if inner_cursor is not None:
        cursors.decode_cursor(inner_cursor)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    runs: list[Any] = []
    for name in _names(store, workspace_id, query, first_name, descending=sort.descending):
        condition = FieldCondition(BY_NAME["name"], Comparison.EQUAL, name)
        page = pages.query_page(
            workspace_id,
            replace(query, where=all_of([query.where, condition])),
            limit=limit - len(runs),
            cursor=inner_cursor if name == first_name else None,
            payloads=payloads,
        )
        runs += page.runs
        if len(runs) >= limit or page.next_cursor is not None:
            last = runs[-1].row
            inner = cursors.encode_cursor(last.partition_time, last.id)
            return RunPage(runs, encode_sort_cursor(sort, last.name, inner))
        if time.monotonic() > deadline:
            raise QueryTooSlow
    return RunPage(runs, None)


def _names(
    store: RunStore,
    workspace_id: UUID,
    query: RunQuery,
    first: str | None,
    *,
    descending: bool,
) -> Iterator[str]:
    """Yield the names in the query's projects and time range from `first` on, in order.

    The empty name of updates without their create comes last, if there are any.
    """
    selection = RunQuery(
        project_ids=query.project_ids,
        run_type=query.run_type,
        is_root=query.is_root,
        started_from=query.started_from,
        started_until=query.started_until,
    )
    metrics_query = MetricsQuery(query=selection, measures=())
    group_by = GroupBy(GroupAttribute.NAME, max_groups=_MAX_NAMES)
    named = run_metrics.query_metrics(
        store, workspace_id, replace(metrics_query, group_by=group_by)
    ).by_group
    names = sorted(filter(None, named), key=_name_key, reverse=descending)
    if first is not None:
        start = _name_key(first)
        names = [
            name
            for name in names
            if first and (_name_key(name) <= start if descending else _name_key(name) >= start)
        ]
    yield from names
    total = run_metrics.query_metrics(store, workspace_id, metrics_query).overall.runs
    if total > sum(metrics.runs for metrics in named.values()):
        yield ""


def _name_key(name: str) -> tuple[str, str]:
    return name.casefold(), name


# By latency, tokens or cost


def _page_by_value(
    workspace_id: UUID,
    query: RunQuery,
    limit: int,
    position: list[str] | None,
    payloads: Collection[Payload],
) -> RunPage:
    sort = query.sort
    if sort is None:
        raise AssertionError("a page by value has a sort")
    prepared = prepare_query(workspace_id, extract_root_condition(replace(query, sort=None)))
    tail_cursor: str | None = None
    runs: list[StoredRun] = []
    has_values = True
    if position is not None and position[0] == "":
        tail_cursor, has_values = position[1], False
    if has_values:
        reader = ValueReader(prepared, sort, None if position is None else _parse(position))
        with statement_timeout(TIMEOUT_SECONDS):
            runs = reader.read(limit + 1)
    if len(runs) > limit:
        runs = runs[:limit]
        value = reader.value.of_run(runs[-1])
        last = cursors.encode_cursor(runs[-1][0].partition_time, runs[-1][0].id)
        next_cursor: str | None = encode_sort_cursor(sort, str(value), last)
    else:
        tail, next_cursor = _runs_without_value(prepared, sort, limit - len(runs), tail_cursor)
        runs += tail
    rows = with_trace_totals(workspace_id, runs)
    return RunPage(with_payloads(rows, payloads, lazily=True), next_cursor)


def _parse(position: list[str]) -> SortPosition:
    try:
        value = Decimal(position[0])
    except InvalidOperation:
        raise InvalidCursor from None
    if not value.is_finite():
        raise InvalidCursor
    return (value, *cursors.decode_cursor(position[1]))


def _runs_without_value(
    prepared: PreparedQuery, sort: RunSort, limit: int, cursor: str | None
) -> tuple[list[StoredRun], str | None]:
    """Return runs that have no value, newest first, and the cursor after them."""
    is_null: Condition = (f"{VALUES[sort.field].sql} IS NULL", [])
    prepared = replace(prepared, conditions=[*prepared.conditions, is_null])
    position = cursors.decode_cursor(cursor) if cursor else None
    runs, last = pages.collect_runs(prepared, RunScan(prepared, position), limit + 1)
    if len(runs) > limit:
        # With a limit of 0, the next page starts with the first of them.
        last = runs[limit - 1] if limit else None
        inner = "" if last is None else cursors.encode_cursor(last[0].partition_time, last[0].id)
        return runs[:limit], encode_sort_cursor(sort, "", inner)
    if last is not None:
        inner = cursors.encode_cursor(last[0].partition_time, last[0].id)
        return runs, encode_sort_cursor(sort, "", inner)
    return runs, None
