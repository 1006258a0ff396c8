"""Parsing of run queries for lists, statistics and groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from apps.core import errors as core_errors
from apps.trace_store import (
    Payload,
    RunDetail,
    RunPage,
    RunQuery,
    RunRow,
    cursors,
    filters,
    run_store,
)
from apps.trace_store.filters import Expression
from apps.tracing.models import Project

REQUIRED_FILTERS = (
    "session",
    "id",
    "trace",
    "parent_run",
    "reference_example",
    "reference_dataset_id",
)
# Bounds that leave room for adding days in both PostgreSQL and Python.
_MIN_TIME = datetime(1900, 1, 1, tzinfo=UTC)
_MAX_TIME = datetime(9000, 1, 1, tzinfo=UTC)


def run_query(workspace_id: UUID, params: dict[str, Any]) -> RunQuery:
    """Build the store query of a validated v1 request body."""
    if all(params.get(name) is None for name in REQUIRED_FILTERS):
        raise core_errors.BadRequest(f"Set at least one of {', '.join(REQUIRED_FILTERS)}.")
    oldest_first = params.get("order") == "asc"
    if params.get("id"):  # as documented, ids override all other filters
        return RunQuery(run_ids=params["id"], oldest_first=oldest_first)
    is_root = params.get("is_root")
    if is_root is None and params.get("execution_order") == 1:
        is_root = True
    return RunQuery(
        project_ids=resolve_project_ids(
            workspace_id, params.get("session"), params.get("reference_dataset_id")
        ),
        trace_id=params.get("trace"),
        parent_run_id=params.get("parent_run"),
        reference_example_ids=params.get("reference_example"),
        run_type=params.get("run_type"),
        is_root=is_root,
        has_error=params.get("error"),
        started_from=parse_time(params.get("start_time")),
        started_until=parse_time(params.get("end_time")),
        where=parse_filters(
            params.get("filter"), params.get("search_filter"), search_filter(params)
        ),
        where_root=parse_filters(params.get("trace_filter")),
        where_any=parse_filters(params.get("tree_filter")),
        oldest_first=oldest_first,
    )


def resolve_project_ids(
    workspace_id: UUID, project_ids: Sequence[UUID] | None, dataset_id: UUID | None
) -> Sequence[UUID] | None:
    """Return the named projects, the dataset's experiments, or the intersection of both."""
    if dataset_id is None:
        return project_ids
    experiments = Project.objects.for_workspace(workspace_id).present()
    experiment_ids = set(
        experiments.filter(reference_dataset_id=dataset_id).values_list("pk", flat=True)
    )
    return sorted(experiment_ids if project_ids is None else experiment_ids & set(project_ids))


def parse_filters(*texts: str | None) -> Expression | None:
    """Parse the filters and combine them with AND; a `FilterError` has the column of the error."""
    return filters.all_of([filters.parse(text) for text in texts if text])


def search_filter(params: dict[str, Any]) -> str | None:
    """Return the filter of a plain-language query; responses repeat it as `parsed_query`."""
    text = params.get("query")
    return f"search({filters.quote(text)})" if text else None


def parse_time(value: datetime | None) -> datetime | None:
    """Return the time in UTC if it is naive, limited to the range of the database."""
    if value is None:
        return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return min(max(value, _MIN_TIME), _MAX_TIME)


def parse_uuid(text: str | None, name: str) -> UUID | None:
    """Parse an id of the query string."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise core_errors.Invalid(f"{name}: not a UUID.") from None


_BACKWARD_PREFIX = "~"
"""Prefix of cursors to the previous page; cursors of the store never start with it."""


@dataclass(frozen=True, slots=True)
class BidirectionalPage:
    """Runs in the requested order, with the cursors of the next and the previous page."""

    runs: Sequence[RunDetail]
    next_cursor: str | None
    previous_cursor: str | None


def read_page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None = None,
    payloads: Collection[Payload] = (),
    max_bytes: int | None = None,
) -> BidirectionalPage:
    """Return the page at the cursor; raises `InvalidCursor` for a malformed one.

    With `max_bytes`, the page ends after the first run with which its payloads have more.
    """
    is_backward = cursor is not None and cursor.startswith(_BACKWARD_PREFIX)
    if cursor is not None and is_backward:
        query = replace(query, oldest_first=not query.oldest_first)
        cursor = cursor.removeprefix(_BACKWARD_PREFIX)
    page = run_store.query(workspace_id, query, limit=limit, cursor=cursor, payloads=payloads)
    if max_bytes is not None:
        page = _cut(page, max_bytes)
    if not is_backward:
        first = page.runs[0].row if page.runs and cursor is not None else None
        return BidirectionalPage(page.runs, page.next_cursor, _backward_cursor(first))
    runs = list(reversed(page.runs))
    next_cursor = (
        cursors.encode_cursor(runs[-1].row.partition_time, runs[-1].row.id) if runs else None
    )
    first = runs[0].row if runs and page.next_cursor is not None else None
    return BidirectionalPage(runs, next_cursor, _backward_cursor(first))


def _cut(page: RunPage, max_bytes: int) -> RunPage:
    size = 0
    for number, run in enumerate(page.runs[:-1], 1):
        size += sum(len(run.stored(payload) or b"") for payload in run.payloads)
        if size > max_bytes:
            next_cursor = cursors.encode_cursor(run.row.partition_time, run.row.id)
            return RunPage(page.runs[:number], next_cursor)
    return page


def _backward_cursor(row: RunRow | None) -> str | None:
    return (
        None
        if row is None
        else _BACKWARD_PREFIX + cursors.encode_cursor(row.partition_time, row.id)
    )
