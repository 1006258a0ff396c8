"""Agent runs: creates them in order of receipt, reads and deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, TextField
from django.db.models.functions import Cast

from apps.agent_server import errors, prepared_sql
from apps.agent_server.models import AgentRun
from apps.agent_server.querysets import AgentRunQuerySet
from apps.agent_server.schemas.runs import BatchedRun, RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import (
    assistants,
    cancel_runs,
    dispatch,
    statements,
    threads,
    webhooks,
)
from apps.agent_server.statuses import OPEN, MultitaskStrategy, RunStatus
from apps.core import request_context
from apps.core.errors import AppError
from apps.core.ids import uuid7
from apps.core.json import dumps, loads, storable


class RunRow(NamedTuple):
    """A run as clients see it; JSON columns as text."""

    run_id: UUID
    thread_id: UUID
    assistant_id: UUID
    status: str
    metadata: str
    kwargs: str
    multitask_strategy: str
    created_at: datetime
    updated_at: datetime


class RunOutcome(NamedTuple):
    """The result of a run that has ended."""

    status: str
    error: dict[str, Any] | None
    values: str | None
    interrupts: dict[str, list[dict[str, Any]]] | None


class JoinableRun(NamedTuple):
    """A run, as readers of its stream need it."""

    run_id: UUID
    is_open: bool
    is_resumable: bool


_COLUMNS: list[str | Cast] = [
    "pk",
    "thread__thread_id",
    "assistant_id",
    "status",
    Cast(F("metadata"), TextField()),
    Cast(F("kwargs"), TextField()),
    "multitask_strategy",
    "created_at",
    "updated_at",
]


def create_on_thread(scope: Scope, thread_id: UUID, body: RunBody) -> RunRow:
    """Receive a run for the thread, behind those that are there, and have it executed.

    Runs of one thread get sequence, id and time of creation in one order: that in which they got
    the thread's lock.
    """
    parameters = _parameters(scope, body)
    parameters |= {"thread": thread_id, "strategy": body.multitask_strategy.value}
    parameters |= {"on_completion": "keep", "supersedes": False}
    row = prepared_sql.fetch_row(statements.ON_THREAD, parameters)
    if row is None:
        row = _retry_or_raise(scope, thread_id, body, parameters)
    return _dispatch(row, thread_id, body)


def create_stateless(scope: Scope, body: RunBody) -> RunRow:
    """Create a run on a new thread, which is deleted with it unless the request keeps it."""
    thread_id = uuid7()
    parameters = _parameters(scope, body)
    parameters |= {"thread": thread_id, "strategy": MultitaskStrategy.ENQUEUE.value}
    minutes, strategy = threads.resolve_ttl(scope.route, None)
    parameters |= {
        "on_completion": body.on_completion,
        "temporary": body.on_completion == "delete",
        "ttl_minutes": minutes,
        "ttl_strategy": strategy,
        "owner_metadata": _json(scope.owner_metadata),
    }
    row = prepared_sql.fetch_row(statements.ON_TEMPORARY_THREAD, parameters)
    if row is None:
        raise _missing_reason(scope, parameters["assistant"]) or errors.ThreadOrAssistantNotFound
    return _dispatch(row, thread_id, body)


@transaction.atomic
def create_batch(requests: Sequence[tuple[Scope, BatchedRun]]) -> list[RunRow]:
    """Create all of these runs or, if one is invalid, none."""
    rows: dict[int, RunRow] = {}
    # Threads are locked by id; the runs of one thread keep their order.
    order = sorted(range(len(requests)), key=lambda index: str(requests[index][1].thread_id))
    for index in order:
        scope, body = requests[index]
        if body.thread_id is None:
            rows[index] = create_stateless(scope, body)
        else:
            rows[index] = create_on_thread(scope, body.thread_id, body)
    return [rows[index] for index in range(len(requests))]


def _parameters(scope: Scope, body: RunBody) -> dict[str, Any]:
    assistants.ensure_system_assistants(scope.route)
    config = body.config.model_dump(exclude_none=True)
    configurable = {**config.pop("configurable", {}), **(body.context or {})}
    if request_id := _request_id():
        configurable["langgraph_request_id"] = request_id
    kwargs = body.kwargs
    if body.webhook is not None:
        kwargs["webhook"] = webhooks.validate(body.webhook, scope.route)
    return {
        "workspace": scope.route.workspace_id,
        "deployment": scope.route.deployment_id,
        "revision": scope.route.active_revision_id,
        "graphs": list(scope.route.graph_ids),
        "assistant": assistants.resolve_id(scope, body.assistant_id),
        "config": _json(config),
        "configurable": _json(scope.configured(configurable)),
        "context": _json(body.context) if body.context else None,
        "metadata": _json(body.metadata),
        "visible": scope.visible,
        "kwargs": _json(kwargs),
        "delay": body.after_seconds,
    }


def _request_id() -> str:
    context = request_context.current()
    return context.request_id if context is not None else ""


def _json(value: Any) -> str:
    return storable(dumps(value)).decode()


def _retry_or_raise(
    scope: Scope, thread_id: UUID, body: RunBody, parameters: dict[str, Any]
) -> tuple[Any, ...]:
    """Handle a run whose insert found no thread or assistant: create, preempt or raise."""
    if error := _missing_reason(scope, parameters["assistant"]):
        raise error
    if not threads.queryset_for(scope).filter(thread_id=thread_id).exists():
        if body.if_not_exists != "create":
            raise errors.ThreadOrAssistantNotFound
        threads.insert(scope, thread_id, scope.owner_metadata)
    row = prepared_sql.fetch_row(statements.ON_THREAD, parameters)
    if row is not None:
        return row
    if body.multitask_strategy == MultitaskStrategy.REJECT:
        raise errors.ThreadBusy
    return _preempt(parameters)


@transaction.atomic
def _preempt(parameters: dict[str, Any]) -> tuple[Any, ...]:
    """Create a run and cancel the thread's other open runs."""
    row = prepared_sql.fetch_row(statements.ON_THREAD, {**parameters, "supersedes": True})
    if row is None:
        raise errors.ThreadOrAssistantNotFound  # the thread was deleted concurrently
    run_id, thread_pk, *_ = row
    cancel_runs.preempt(thread_pk, parameters["strategy"], run_id)
    return row


def _missing_reason(scope: Scope, assistant_id: UUID) -> AppError | None:
    """The error for a missing assistant or graph; None if both exist."""
    rows = assistants.queryset_for(scope.unfiltered()).filter(assistant_id=assistant_id)
    graph_id = rows.values_list("graph_id", flat=True).first()
    if graph_id is None:
        return errors.ThreadOrAssistantNotFound()
    return None if graph_id in scope.route.graph_ids else errors.GraphGone(graph_id)


def _dispatch(row: tuple[Any, ...], thread_id: UUID, body: RunBody) -> RunRow:
    run_id, thread_pk, *rest = row
    if body.after_seconds:
        prepared_sql.on_commit(lambda: dispatch.schedule_run(body.after_seconds))
    else:
        prepared_sql.on_commit(lambda: dispatch.enqueue_thread(thread_pk))
    return RunRow(run_id, thread_id, *rest)


def queryset_for(scope: Scope, thread_id: UUID) -> AgentRunQuerySet:
    """The runs of a thread of the agent, including threads of stateless runs."""
    runs = AgentRun.objects.for_workspace(scope.route.workspace_id)
    return runs.filter(deployment=scope.route.deployment_id, thread__thread_id=thread_id)


def get(scope: Scope, thread_id: UUID, run_id: UUID) -> RunRow:
    row = prepared_sql.fetch_row(statements.RUN, [run_id, *scope.key, scope.visible, thread_id])
    if row is None:
        raise errors.RunNotFound
    return RunRow(*row)


def list_newest(
    scope: Scope, thread_id: UUID, *, limit: int, offset: int, status: str | None
) -> list[RunRow]:
    """A page of the thread's runs, newest first."""
    if not threads.queryset_for(scope).filter(thread_id=thread_id).exists():
        raise errors.ThreadNotFound(thread_id)
    rows = queryset_for(scope, thread_id).order_by("-sequence")
    if status:
        rows = rows.filter(status=status) if status in RunStatus.values else rows.none()
    return [RunRow(*row) for row in rows.values_list(*_COLUMNS)[offset : offset + limit]]


def find_joinable(scope: Scope, run_id: UUID, thread_id: UUID | None = None) -> JoinableRun | None:
    """The run for a stream's reader; without `thread_id`, on any thread."""
    row = prepared_sql.fetch_row(
        statements.JOINABLE, [run_id, *scope.key, scope.visible, thread_id, thread_id]
    )
    if row is None:
        return None
    status, resumable = row
    return JoinableRun(run_id, status in OPEN, bool(resumable))


def read_outcome(scope: Scope, run_id: UUID) -> RunOutcome | None:
    """The run's result with the thread's current values; None if the run was deleted."""
    row = prepared_sql.fetch_row(statements.OUTCOME, [run_id, *scope.key, scope.visible])
    if row is None:
        return None
    status, error, values, interrupts = row
    return RunOutcome(status, loads(error or "null"), values, loads(interrupts or "null"))


def find_ended(run_ids: list[UUID]) -> dict[UUID, str]:
    """The status of the runs that have ended; a deleted run has the status `gone`."""
    runs = AgentRun.objects.across_workspaces(reason="the ids are of streams that are open here")
    statuses = dict(runs.filter(pk__in=run_ids).values_list("pk", "status"))
    return {
        run_id: statuses.get(run_id, "gone")
        for run_id in run_ids
        if statuses.get(run_id) not in OPEN
    }


def delete(scope: Scope, thread_id: UUID, run_id: UUID) -> None:
    """Delete the run and end it if it is open. Its checkpoints are kept."""
    row = prepared_sql.fetch_row(
        statements.THREAD_OF_RUN, [run_id, *scope.key, scope.visible, thread_id]
    )
    if row is None or not cancel_runs.delete_run(row[0], run_id):
        raise errors.RunNotFound
