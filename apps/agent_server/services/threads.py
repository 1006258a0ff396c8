"""Threads: making, finding, changing and forgetting them.

Rows come back as `ThreadRow`, whose JSON is still text: it goes out as PostgreSQL wrote it.
"""
# ruff: noqa: S608  (the pieces are constants of this module)

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet, TextField
from django.db.models.functions import Cast

from apps.agent_server import errors, prepared
from apps.agent_server.bodies.threads import NewThread, ThreadCount, ThreadSearch
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.querysets import ThreadQuerySet
from apps.agent_server.scope import Scope
from apps.agent_server.services import dispatch
from apps.agent_server.statuses import RunStatus, ThreadStatus
from apps.core.ids import uuid7
from apps.core.json import dumps, storable


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
    """What is known of a thread's state without asking its graph."""

    pk: UUID
    status: str
    runs_received: int
    state: str | None
    graph_id: str | None
    revision_id: UUID | None

    @property
    def is_blank(self) -> bool:
        """Nothing was ever saved on it."""
        return self.state is None and not self.runs_received

    @property
    def is_settled(self) -> bool:
        """The kept state is the whole truth: no open run is changing it."""
        return self.state is not None and self.status != ThreadStatus.BUSY


_JSON = frozenset({"metadata", "config", "values", "interrupts", "error"})
_COLUMNS: list[str | Cast] = [
    Cast(F(name), TextField()) if name in _JSON else name for name in ThreadRow._fields
]
_RETURNED = ", ".join(f'"{name}"::text' if name in _JSON else name for name in ThreadRow._fields)
_THIS = """workspace_id = %s AND deployment_id = %s AND thread_id = %s AND NOT temporary
  AND metadata @> %s::jsonb"""
_INSERT = f"""
INSERT INTO agent_server_thread
    (id, workspace_id, deployment_id, thread_id, status, metadata, config, temporary)
VALUES (%s, %s, %s, %s, 'idle', %s::jsonb, '{{}}', false)
ON CONFLICT (workspace_id, deployment_id, thread_id) DO NOTHING
RETURNING {_RETURNED}
"""
_SELECT = f"SELECT {_RETURNED} FROM agent_server_thread WHERE {_THIS}"
# One statement, so that a change by a run that starts meanwhile is merged and not overwritten.
_MERGE = f"""
UPDATE agent_server_thread SET metadata = metadata || %s::jsonb, updated_at = clock_timestamp()
WHERE {_THIS}
RETURNING {_RETURNED}
"""
_STATE_SOURCE = f"""
SELECT id, status, runs_received, state::text, metadata->>'graph_id', revision_id
FROM agent_server_thread WHERE {_THIS}
"""


def of(scope: Scope) -> ThreadQuerySet:
    """The threads of the agent that clients may see."""
    rows = Thread.objects.for_workspace(scope.route.workspace_id)
    return rows.of(scope.route.deployment_id).within(scope.visible)


def create(scope: Scope, body: NewThread) -> ThreadRow:
    """Make the thread. A given id that is taken: the old row or `ThreadExists`, as asked."""
    thread_id = body.thread_id or uuid7()
    made = insert(scope, thread_id, body.metadata)
    if made is not None:
        return made
    if body.if_exists == "raise":
        raise errors.ThreadExists(thread_id)
    return get(scope, thread_id)


def insert(scope: Scope, thread_id: UUID, metadata: dict[str, Any]) -> ThreadRow | None:
    """Make the thread unless its id is taken, which the constraint decides."""
    text = storable(dumps(metadata)).decode()
    row = prepared.row(_INSERT, [uuid7(), *scope.key, thread_id, text])
    return None if row is None else ThreadRow(*row)


def get(scope: Scope, thread_id: UUID) -> ThreadRow:
    row = prepared.row(_SELECT, _key(scope, thread_id))
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return ThreadRow(*row)


def _key(scope: Scope, thread_id: UUID) -> list[Any]:
    """What names a thread that the caller may see: its id is unique within its deployment."""
    return [*scope.key, thread_id, scope.visible]


def merge_metadata(scope: Scope, thread_id: UUID, metadata: dict[str, Any]) -> ThreadRow:
    """Put the keys over those that are there; a run may be under way."""
    text = storable(dumps(metadata)).decode()
    row = prepared.row(_MERGE, [text, *_key(scope, thread_id)])
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return ThreadRow(*row)


@transaction.atomic
def delete(scope: Scope, thread_id: UUID) -> None:
    """Forget the thread with its runs and state; a run under way is told to stop.

    What that run still writes is refused, because its row is gone.
    """
    thread = of(scope).filter(thread_id=thread_id).select_for_update().first()
    if thread is None:
        raise errors.ThreadNotFound(thread_id)
    runs = AgentRun.objects.for_workspace(scope.route.workspace_id).filter(thread=thread)
    for run_id in runs.filter(status=RunStatus.RUNNING).values_list("pk", flat=True):
        transaction.on_commit(lambda run_id=run_id: dispatch.cancel_run(run_id))  # type: ignore[misc]
    thread.delete()


def search(scope: Scope, body: ThreadSearch) -> tuple[list[ThreadRow], bool]:
    """One page of threads, and whether there are more."""
    sign = "-" if body.sort_order == "desc" else ""
    found = _matching(scope, body)
    if body.ids is not None:
        found = found.filter(thread_id__in=body.ids)
    found = found.order_by(f"{sign}{body.sort_by}", f"{sign}id")
    rows = found.values_list(*_COLUMNS)[body.offset : body.offset + body.limit + 1]
    page = [ThreadRow(*row) for row in rows]
    return page[: body.limit], len(page) > body.limit


def count(scope: Scope, body: ThreadCount) -> int:
    return _matching(scope, body).count()


def state_source(scope: Scope, thread_id: UUID) -> StateSource:
    """Where the thread's state is to be had: here, or from its graph."""
    row = prepared.row(_STATE_SOURCE, _key(scope, thread_id))
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return StateSource(*row)


def _matching(scope: Scope, body: ThreadCount) -> QuerySet[Thread]:
    found = of(scope)
    if body.metadata:
        found = found.filter(metadata__contains=body.metadata)
    if body.values:
        found = found.filter(values__contains=body.values)
    if body.status is not None:
        found = found.filter(status=body.status)
    return found
