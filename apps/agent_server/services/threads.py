"""Creation, changes and reads of threads.

Rows are returned as `ThreadRow`, whose JSON columns are the text that PostgreSQL returned.
"""
# ruff: noqa: S608  (the pieces are constants of this module)

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server import errors, prepared_sql
from apps.agent_server.models import Thread
from apps.agent_server.querysets import ThreadQuerySet
from apps.agent_server.schemas.threads import (
    TTL,
    NewThread,
    ThreadChanges,
    ThreadCount,
    ThreadSearch,
    parse_path,
)
from apps.agent_server.scope import Scope
from apps.agent_server.statuses import ThreadStatus, TTLStrategy
from apps.core.errors import TooLarge
from apps.core.ids import uuid7
from apps.core.json import dumps, storable
from apps.core.verbatim_json import searchable
from apps.deployments.routes import Route
from apps.usage import storage
from apps.usage.models import StorageKind


class ThreadRow(NamedTuple):
    """A thread as clients see it; JSON columns as text."""

    thread_id: UUID
    created_at: datetime
    updated_at: datetime
    state_updated_at: datetime
    metadata: str
    config: str
    status: str
    values: str | None
    interrupts: str | None
    error: str | None


class StateSource(NamedTuple):
    """The stored part of a thread's state, and the inputs of a graph call for the rest."""

    pk: UUID
    status: str
    changes: int
    state: str | None
    graph_id: str | None
    revision_id: UUID | None
    config: str
    version: str
    """The version of the row, which changes with each change of the thread or its history."""

    @property
    def is_blank(self) -> bool:
        """Whether the thread has no checkpoint."""
        return self.state is None and not self.changes

    @property
    def has_current_state(self) -> bool:
        """Whether the stored state is current: no open run can change it."""
        return self.state is not None and self.status != ThreadStatus.BUSY


_SEARCHABLE_VALUES = searchable('"values"')
_VERBATIM = frozenset({"values", "interrupts"})
_JSON = frozenset({"metadata", "config", "values", "interrupts", "error"})
_LARGE = frozenset({"values", "interrupts", "extracted"})


def _column(name: str) -> str:
    """The SQL of a returned column; `name` must be a constant or validated."""
    return f'"{name}"::text' if name in _JSON else f'"{name}"'


MAX_PAGE_BYTES = 67_108_864
"""JSON of the states, or of parts of them, that a search returns at once."""
RETURNED_COLUMNS = ", ".join(_column(name) for name in ThreadRow._fields)
IS_VISIBLE_THREAD = """workspace_id = %s AND deployment_id = %s AND thread_id = %s AND NOT temporary
  AND metadata @> %s::jsonb"""
_INSERT = f"""
INSERT INTO agent_server_thread (
    id, workspace_id, deployment_id, thread_id, status, metadata, config, temporary,
    ttl_minutes, ttl_strategy
)
VALUES (%s, %s, %s, %s, 'idle', %s::jsonb, '{{}}', %s, %s, %s)
ON CONFLICT (workspace_id, deployment_id, thread_id) DO NOTHING
RETURNING {RETURNED_COLUMNS}
"""
_SELECT = f"SELECT {RETURNED_COLUMNS} FROM agent_server_thread WHERE {IS_VISIBLE_THREAD}"
# One statement, so that concurrent changes by a starting run are merged, not overwritten.
_CHANGE = f"""
UPDATE agent_server_thread
SET metadata = metadata || %s::jsonb, updated_at = clock_timestamp(),
    ttl_minutes = coalesce(%s, ttl_minutes), ttl_strategy = coalesce(%s, ttl_strategy)
WHERE {IS_VISIBLE_THREAD}
RETURNING {RETURNED_COLUMNS}
"""
_STATE_SOURCE = f"""
SELECT id, status, runs_received + edits, state::text, metadata->>'graph_id', revision_id,
    config::text, xmin::text
FROM agent_server_thread WHERE {IS_VISIBLE_THREAD}
"""
_TTL = f"""
SELECT jsonb_build_object(
    'strategy', ttl_strategy, 'ttl_minutes', ttl_minutes, 'expires_at', ttl_until
)::text
FROM agent_server_thread WHERE {IS_VISIBLE_THREAD} AND ttl_minutes IS NOT NULL
"""


def queryset_for(scope: Scope) -> ThreadQuerySet:
    """The threads of the agent that clients may see."""
    rows = Thread.objects.for_workspace(scope.route.workspace_id)
    return rows.for_deployment(scope.route.deployment_id).with_metadata(scope.visible)


def create(scope: Scope, body: NewThread) -> ThreadRow:
    """Create the thread. `if_exists` decides between the existing row and `ThreadExists`."""
    thread_id = body.thread_id or uuid7()
    row = insert(scope, thread_id, body.metadata, ttl=body.ttl)
    return row or get_existing(scope, thread_id, body)


def get_existing(scope: Scope, thread_id: UUID, body: NewThread) -> ThreadRow:
    """The existing thread with this id, if `if_exists` allows it. Raises `ThreadExists`."""
    row = prepared_sql.fetch_row(_SELECT, _key(scope, thread_id))
    if row is None:  # hidden from the caller
        raise errors.ThreadNotFound(thread_id)
    if body.if_exists == "raise":
        raise errors.ThreadExists(thread_id)
    return ThreadRow(*row)


def insert(
    scope: Scope,
    thread_id: UUID,
    metadata: dict[str, Any],
    *,
    ttl: TTL | None = None,
    pk: UUID | None = None,
    hidden: bool = False,
) -> ThreadRow | None:
    """Insert the thread; return None if its id exists (by the unique constraint).

    A `hidden` thread is invisible until its first edit; without an edit it is purged. Raises
    `StorageFull`.
    """
    storage.check(scope.route.workspace_id, StorageKind.THREADS)
    text = storable(dumps(metadata)).decode()
    minutes, strategy = resolve_ttl(scope.route, ttl)
    row = prepared_sql.fetch_row(
        _INSERT, [pk or uuid7(), *scope.key, thread_id, text, hidden, minutes, strategy]
    )
    return None if row is None else ThreadRow(*row)


def resolve_ttl(route: Route, ttl: TTL | None) -> tuple[float | None, str]:
    """Minutes and strategy for a new thread: of the request or, by default, of `langgraph.json`."""
    if ttl is not None:
        return ttl.ttl, ttl.strategy.value
    configured = (route.config.get("checkpointer") or {}).get("ttl") or {}
    strategy = configured.get("strategy") or TTLStrategy.DELETE.value
    return configured.get("default_ttl"), strategy


def get(scope: Scope, thread_id: UUID) -> ThreadRow:
    row = prepared_sql.fetch_row(_SELECT, _key(scope, thread_id))
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return ThreadRow(*row)


def read_ttl(scope: Scope, thread_id: UUID) -> str | None:
    """The thread's time to live as JSON; None if it has none."""
    row = prepared_sql.fetch_row(_TTL, _key(scope, thread_id))
    return None if row is None else row[0]


def _key(scope: Scope, thread_id: UUID) -> list[Any]:
    """The parameters of `THIS`: deployment, thread id and visibility filter."""
    return [*scope.key, thread_id, scope.visible]


def update(scope: Scope, thread_id: UUID, changes: ThreadChanges) -> ThreadRow:
    """Merge the changes into the thread's metadata; allowed during a run. Raises `StorageFull`."""
    storage.check(scope.route.workspace_id, StorageKind.THREADS)
    text = storable(dumps(changes.metadata)).decode()
    ttl = changes.ttl
    ttl_params = [ttl.ttl, ttl.strategy.value] if ttl is not None else [None, None]
    row = prepared_sql.fetch_row(_CHANGE, [text, *ttl_params, *_key(scope, thread_id)])
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return ThreadRow(*row)


def search(scope: Scope, body: ThreadSearch) -> tuple[list[dict[str, Any]], bool]:
    """One page of threads with the selected fields, and whether there are more.

    Raises `TooLarge` if the states of the threads have more than `MAX_PAGE_BYTES`.
    """
    names: list[str] = [*(body.select or ThreadRow._fields)]
    columns = [_column(name) for name in names]
    parameters: list[Any] = []
    if body.extract:
        names.append("extracted")
        extracted, parameters = _extract_columns(body.extract)
        columns.append(extracted)
    where, where_parameters = _search_condition(scope, body)
    if body.ids is not None:
        where += " AND thread_id = ANY(%s)"
        where_parameters.append(body.ids)
    order = "DESC" if body.sort_order == "desc" else "ASC"
    order_by = f'ORDER BY "{body.sort_by}" {order}, id {order}'
    page_rows = f"agent_server_thread WHERE {where} {order_by} LIMIT %s OFFSET %s"
    if large := [column for name, column in zip(names, columns, strict=True) if name in _LARGE]:
        size = " + ".join(f"coalesce(octet_length({column}), 0)" for column in large)
        page_rows = f"""(
            SELECT *, sum({size}) OVER () > {MAX_PAGE_BYTES:d} AS is_too_large
            FROM (SELECT * FROM {page_rows}) page
        ) page {order_by}"""
        columns = [
            f"CASE WHEN NOT is_too_large THEN {column} END" if column in large else column
            for column in columns
        ]
        names, columns = [*names, "is_too_large"], [*columns, "is_too_large"]
        parameters *= 2
    parameters += [*where_parameters, body.limit + 1, body.offset]
    rows = prepared_sql.fetch_rows(f"SELECT {', '.join(columns)} FROM {page_rows}", parameters)
    page = [dict(zip(names, row, strict=True)) for row in rows]
    refusals = [row.pop("is_too_large") for row in page] if large else []
    if any(refusals):
        limit = MAX_PAGE_BYTES // 1_048_576
        raise TooLarge(f"The threads have more than {limit} MB: search with a smaller `limit`.")
    return page[: body.limit], len(page) > body.limit


def _extract_columns(extract: dict[str, str]) -> tuple[str, list[Any]]:
    """SQL of a JSON object with the values at the paths; null for missing ones."""
    pairs, parameters = [], []
    for alias, path in extract.items():
        column, steps = parse_path(path)
        source = searchable(f'"{column}"') if column in _VERBATIM else f'"{column}"'
        pairs.append(f"%s::text, {source} #> %s::text[]")
        parameters += [alias, steps]
    return f"jsonb_build_object({', '.join(pairs)})::text", parameters


def count(scope: Scope, body: ThreadCount) -> int:
    where, parameters = _search_condition(scope, body)
    row = prepared_sql.fetch_row(
        f"SELECT count(*) FROM agent_server_thread WHERE {where}", parameters
    )
    return row[0] if row is not None else 0


def get_state_source(scope: Scope, thread_id: UUID) -> StateSource:
    """The stored state of the thread. Raises `ThreadNotFound`."""
    row = prepared_sql.fetch_row(_STATE_SOURCE, _key(scope, thread_id))
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return StateSource(*row)


def _search_condition(scope: Scope, body: ThreadCount) -> tuple[str, list[Any]]:
    """The SQL condition of a search and its parameters."""
    where, parameters = "workspace_id = %s AND deployment_id = %s AND NOT temporary", [*scope.key]
    conditions: list[tuple[str, Any]] = []
    if scope.visible != "{}":
        conditions.append(("metadata @> %s::jsonb", scope.visible))
    if body.metadata:
        conditions.append(("metadata @> %s::jsonb", storable(dumps(body.metadata)).decode()))
    if body.values:
        values = storable(dumps(body.values)).decode()
        conditions.append((f"{_SEARCHABLE_VALUES} @> %s::jsonb", values))
    if body.status is not None:
        conditions.append(("status = %s", body.status.value))
    for condition, _ in conditions:
        where += f" AND {condition}"
    return where, [*parameters, *(value for _, value in conditions)]
