"""Creates agent runs in order of receipt, reads and deletes them."""

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
    checkpoints,
    dispatch,
    queue_limits,
    statements,
    threads,
    webhooks,
)
from apps.agent_server.statuses import OPEN, MultitaskStrategy, RunStatus
from apps.core import request_context
from apps.core.errors import AppError
from apps.core.ids import uuid7
from apps.core.json import dumps, loads, loads_exact, storable
from apps.usage import storage
from apps.usage.models import StorageKind


class AgentRunRow(NamedTuple):
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


class TraceParent(NamedTuple):
    """The tracing run below which an agent run is traced, in the project of that run."""

    dotted_order: str
    project_name: str


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


def create_on_thread(scope: Scope, thread_id: UUID, body: RunBody) -> AgentRunRow:
    """Create a run behind the earlier runs of the thread, and queue the thread.

    Runs get sequence, id and creation time in the order in which they locked the thread. Raises
    `QueueFull` if the organization or deployment has the maximum of pending runs, and `StorageFull`
    if the workspace has the maximum of threads in bytes.
    """
    storage.check(scope.route.workspace_id, StorageKind.THREADS)
    with queue_limits.reserve(scope.route):
        return _create_on_thread(scope, thread_id, body)


def _create_on_thread(scope: Scope, thread_id: UUID, body: RunBody) -> AgentRunRow:
    parameters = _build_parameters(scope, body)
    _check_checkpoints(scope, thread_id, body, parameters["assistant"])
    parameters |= {"thread": thread_id, "strategy": body.multitask_strategy.value}
    parameters |= {"on_completion": "keep", "supersedes": False}
    row = prepared_sql.fetch_row(statements.CREATE_ON_THREAD, parameters)
    if row is None:
        row = _retry_or_raise(scope, thread_id, body, parameters)
    return _dispatch(row, thread_id, body)


def create_stateless(
    scope: Scope, body: RunBody, *, trace_parent: TraceParent | None = None
) -> AgentRunRow:
    """Create a run on a new thread, which is deleted after the run unless the request keeps it.

    Raises `QueueFull` and `StorageFull` as `create_on_thread` does.
    """
    storage.check(scope.route.workspace_id, StorageKind.THREADS)
    with queue_limits.reserve(scope.route):
        return _create_stateless(scope, body, trace_parent)


def _create_stateless(
    scope: Scope, body: RunBody, trace_parent: TraceParent | None = None
) -> AgentRunRow:
    thread_id = uuid7()
    parameters = _build_parameters(scope, body, trace_parent)
    if keys := body.checkpoint_keys:
        raise errors.UnknownCheckpoint(keys[0].field, keys[0].checkpoint_id)
    parameters |= {"thread": thread_id, "strategy": MultitaskStrategy.ENQUEUE.value}
    minutes, strategy = threads.resolve_ttl(scope.route, None)
    parameters |= {
        "on_completion": body.on_completion,
        "temporary": body.on_completion == "delete",
        "ttl_minutes": minutes,
        "ttl_strategy": strategy,
        "owner_metadata": _to_json(scope.owner_metadata),
    }
    row = prepared_sql.fetch_row(statements.CREATE_ON_NEW_THREAD, parameters)
    if row is None:
        raise _missing_reason(scope, parameters["assistant"]) or errors.ThreadOrAssistantNotFound(
            "assistant_id", parameters["assistant"]
        )
    return _dispatch(row, thread_id, body)


def create_batch(requests: Sequence[tuple[Scope, BatchedRun]]) -> list[AgentRunRow]:
    """Create all runs of one agent, or none if one of them is invalid.

    Raises `QueueFull` and `StorageFull` as `create_on_thread` does.
    """
    if not requests:
        return []
    route = requests[0][0].route
    storage.check(route.workspace_id, StorageKind.THREADS)
    with queue_limits.reserve(route, len(requests)), transaction.atomic():
        return _create_batch(requests)


def _create_batch(requests: Sequence[tuple[Scope, BatchedRun]]) -> list[AgentRunRow]:
    rows: dict[int, AgentRunRow] = {}
    # Threads are locked by id; the runs of one thread keep their order.
    order = sorted(range(len(requests)), key=lambda index: str(requests[index][1].thread_id))
    for index in order:
        scope, body = requests[index]
        if body.thread_id is None:
            rows[index] = _create_stateless(scope, body)
        else:
            rows[index] = _create_on_thread(scope, body.thread_id, body)
    return [rows[index] for index in range(len(requests))]


def _check_checkpoints(scope: Scope, thread_id: UUID, body: RunBody, assistant_id: UUID) -> None:
    """Raise if the run refers to a checkpoint that its thread does not have.

    The graph host checks again, since a rollback may delete the checkpoint until then.
    """
    body.check_checkpoint_thread(thread_id)
    missing_checkpoint = checkpoints.find_missing(scope, thread_id, body.checkpoint_keys)
    if missing_checkpoint is None:
        return
    if error := _missing_reason(scope, assistant_id):
        raise error
    thread_exists = threads.queryset_for(scope).filter(thread_id=thread_id).exists()
    if not thread_exists and body.if_not_exists != "create":
        raise errors.ThreadOrAssistantNotFound("thread_id", thread_id)
    raise missing_checkpoint


def _build_parameters(
    scope: Scope, body: RunBody, trace_parent: TraceParent | None = None
) -> dict[str, Any]:
    assistants.ensure_system_assistants(scope.route)
    config = body.config.model_dump(exclude_none=True)
    configurable = {**config.pop("configurable", {}), **(body.context or {})}
    if request_id := _request_id():
        configurable["langgraph_request_id"] = request_id
    kwargs = body.kwargs
    if trace_parent is not None:
        kwargs["trace_parent"] = trace_parent._asdict()
    if body.webhook is not None:
        kwargs["webhook"] = webhooks.validate(body.webhook, scope.route)
    return {
        "workspace": scope.route.workspace_id,
        "deployment": scope.route.deployment_id,
        "revision": scope.route.active_revision_id,
        "graphs": list(scope.route.graph_ids),
        "assistant": assistants.resolve_id(scope, body.assistant_id),
        "config": _to_json(config),
        "configurable": _to_json(scope.configured(configurable)),
        "context": _to_json(body.context) if body.context else None,
        "metadata": _to_json(body.metadata),
        "visible": scope.visible,
        "kwargs": dumps(kwargs).decode().removesuffix("}"),
        "resumable": body.stream_resumable,
        "delay": body.after_seconds,
    }


def _request_id() -> str:
    context = request_context.current()
    return context.request_id if context is not None else ""


def _to_json(value: Any) -> str:
    return storable(dumps(value)).decode()


def _retry_or_raise(
    scope: Scope, thread_id: UUID, body: RunBody, parameters: dict[str, Any]
) -> tuple[Any, ...]:
    """Insert the run again after creating the thread or preempting its runs, or raise."""
    if error := _missing_reason(scope, parameters["assistant"]):
        raise error
    if not threads.queryset_for(scope).filter(thread_id=thread_id).exists():
        if body.if_not_exists != "create":
            raise errors.ThreadOrAssistantNotFound("thread_id", thread_id)
        threads.insert(scope, thread_id, scope.owner_metadata)
    row = prepared_sql.fetch_row(statements.CREATE_ON_THREAD, parameters)
    if row is not None:
        return row
    if body.multitask_strategy == MultitaskStrategy.REJECT:
        raise errors.ThreadBusy
    return _preempt(parameters)


@transaction.atomic
def _preempt(parameters: dict[str, Any]) -> tuple[Any, ...]:
    """Create a run and cancel the thread's other open runs."""
    row = prepared_sql.fetch_row(statements.CREATE_ON_THREAD, {**parameters, "supersedes": True})
    if row is None:
        # The thread was deleted concurrently.
        raise errors.ThreadOrAssistantNotFound("thread_id", parameters["thread"])
    run_id, thread_pk, *_ = row
    cancel_runs.preempt(thread_pk, parameters["strategy"], run_id)
    return row


def _missing_reason(scope: Scope, assistant_id: UUID) -> AppError | None:
    """The error for a missing assistant or graph; None if both exist."""
    rows = assistants.queryset_for(scope.unfiltered()).filter(assistant_id=assistant_id)
    graph_id = rows.values_list("graph_id", flat=True).first()
    if graph_id is None:
        return errors.ThreadOrAssistantNotFound("assistant_id", assistant_id)
    return None if graph_id in scope.route.graph_ids else errors.GraphGone(graph_id)


def _dispatch(row: tuple[Any, ...], thread_id: UUID, body: RunBody) -> AgentRunRow:
    run_id, thread_pk, *columns = row
    if body.after_seconds:
        prepared_sql.on_commit(lambda: dispatch.schedule_run(body.after_seconds))
    else:
        prepared_sql.on_commit(lambda: dispatch.enqueue_thread(thread_pk))
    return AgentRunRow(run_id, thread_id, *columns)


def queryset_for(scope: Scope, thread_id: UUID) -> AgentRunQuerySet:
    """The runs of a thread of the agent, including threads of stateless runs."""
    runs = AgentRun.objects.for_workspace(scope.route.workspace_id)
    return runs.filter(deployment=scope.route.deployment_id, thread__thread_id=thread_id)


def get(scope: Scope, thread_id: UUID, run_id: UUID) -> AgentRunRow:
    row = prepared_sql.fetch_row(
        statements.SELECT_RUN, [run_id, *scope.key, scope.visible, thread_id]
    )
    if row is None:
        raise errors.AgentRunNotFound
    return AgentRunRow(*row)


def list_newest(
    scope: Scope, thread_id: UUID, *, limit: int, offset: int, status: str | None
) -> list[AgentRunRow]:
    """A page of the thread's runs, newest first."""
    if not threads.queryset_for(scope).filter(thread_id=thread_id).exists():
        raise errors.ThreadNotFound(thread_id)
    rows = queryset_for(scope, thread_id).order_by("-sequence")
    if status:
        rows = rows.filter(status=status) if status in RunStatus.values else rows.none()
    return [AgentRunRow(*row) for row in rows.values_list(*_COLUMNS)[offset : offset + limit]]


def find_joinable(scope: Scope, run_id: UUID, thread_id: UUID | None = None) -> JoinableRun | None:
    """The run, as a reader of its stream needs it; without `thread_id`, on any thread."""
    row = prepared_sql.fetch_row(
        statements.SELECT_JOINABLE, [run_id, *scope.key, scope.visible, thread_id, thread_id]
    )
    if row is None:
        return None
    status, resumable = row
    return JoinableRun(run_id, status in OPEN, bool(resumable))


def read_outcome(scope: Scope, run_id: UUID) -> RunOutcome | None:
    """The run's status and error with the thread's current values; None if it was deleted."""
    row = prepared_sql.fetch_row(statements.SELECT_OUTCOME, [run_id, *scope.key, scope.visible])
    if row is None:
        return None
    status, error, values, interrupts = row
    return RunOutcome(status, loads(error or "null"), values, loads_exact(interrupts or "null"))


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
    """Delete the run, after ending it if it is open. Its checkpoints are kept."""
    row = prepared_sql.fetch_row(
        statements.SELECT_THREAD_OF_RUN, [run_id, *scope.key, scope.visible, thread_id]
    )
    if row is None or not cancel_runs.delete_run(row[0], run_id):
        raise errors.AgentRunNotFound
