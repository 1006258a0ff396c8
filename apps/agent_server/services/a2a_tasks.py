"""Tasks of A2A clients: creates, resumes, cancels and reads them."""
# ruff: noqa: S608  (the pieces are constants of this module)

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from apps.agent_server import prepared_sql
from apps.agent_server.a2a.params import ListParams, PushConfig, invalid
from apps.agent_server.a2a.rendering import TaskView
from apps.agent_server.a2a.rpc import (
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    A2AError,
)
from apps.agent_server.a2a.statements import TASK_KEY
from apps.agent_server.errors import AssistantNotFound
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import (
    a2a_push,
    assistants,
    cancel_runs,
    dispatch,
    runs,
    threads,
)
from apps.agent_server.statuses import RunStatus, TaskState
from apps.core.ids import uuid7
from apps.core.json import dumps_text, loads_exact
from apps.core.verbatim_json import searchable

JSONObject = dict[str, Any]
_STATE_BY_RUN_STATUS = {
    RunStatus.PENDING: TaskState.SUBMITTED,
    RunStatus.RUNNING: TaskState.WORKING,
    RunStatus.SUCCESS: TaskState.COMPLETED,
    RunStatus.ERROR: TaskState.FAILED,
    RunStatus.TIMEOUT: TaskState.FAILED,
    RunStatus.INTERRUPTED: TaskState.CANCELED,
}

_COLUMNS = """
SELECT t.id, t.context_id, h.thread_id, t.run_id, t.state, r.status, t.history::text,
    t.output::text, t.interrupts::text, t.error::text, t.updated_at
"""
_FROM = """
FROM agent_server_a2atask t
JOIN agent_server_thread h ON h.id = t.thread_id
LEFT JOIN agent_server_agentrun r ON r.id = t.run_id
WHERE t.workspace_id = %(workspace)s AND t.deployment_id = %(deployment)s
  AND t.assistant_id = %(assistant)s AND h.metadata @> %(visible)s::jsonb
"""
_GET = f"{_COLUMNS}{_FROM} AND t.id = %(task)s"
_FILTERS = """
  AND (%(context)s::text IS NULL OR t.context_id = %(context)s)
  AND (%(updated_after)s::timestamptz IS NULL OR t.updated_at > %(updated_after)s)
  AND (%(state)s::text IS NULL OR %(state)s = CASE
      WHEN t.state <> '' THEN t.state
      WHEN r.status = 'pending' THEN 'submitted'
      WHEN r.status = 'running' THEN 'working'
      WHEN r.status = 'success' THEN 'completed'
      WHEN r.status IN ('error', 'timeout') THEN 'failed'
      ELSE 'canceled' END)
"""
_LIST = f"""{_COLUMNS}{_FROM}{_FILTERS}
  AND (%(before_time)s::timestamptz IS NULL
      OR (t.updated_at, t.id) < (%(before_time)s, %(before_id)s::uuid))
ORDER BY t.updated_at DESC, t.id DESC LIMIT %(limit)s
"""
_COUNT = f"SELECT count(*) {_FROM}{_FILTERS}"
_INSERT = """
INSERT INTO agent_server_a2atask (
    id, workspace_id, deployment_id, thread_id, assistant_id, context_id, run_id, state, history
)
SELECT %s, r.workspace_id, r.deployment_id, r.thread_id, r.assistant_id, %s, r.id, '', %s::json
FROM agent_server_agentrun r WHERE r.id = %s
RETURNING updated_at
"""
_RESUME = """
UPDATE agent_server_a2atask
SET run_id = %s, state = '', history = %s::json, output = NULL, interrupts = NULL, error = NULL,
    updated_at = clock_timestamp()
WHERE id = %s
RETURNING updated_at
"""
# The graph may wait for other answers by now: a later message of the context began anew.
_LOCK_PAUSED = """
SELECT h.interrupts::text
FROM agent_server_a2atask t JOIN agent_server_thread h ON h.id = t.thread_id
WHERE t.id = %s AND t.run_id = %s AND t.state = 'input-required'
FOR UPDATE OF t
"""
_CANCEL_PAUSED = """
UPDATE agent_server_a2atask
SET state = 'canceled', interrupts = NULL, updated_at = clock_timestamp()
WHERE id = %s AND state = 'input-required'
RETURNING run_id, thread_id
"""
_HAS_MESSAGE = f"""
SELECT EXISTS (
    SELECT 1 FROM agent_server_a2atask t JOIN agent_server_thread h ON h.id = t.thread_id
    WHERE h.workspace_id = %s AND h.deployment_id = %s AND h.thread_id = %s
      AND {searchable("t.history")} @> %s::jsonb)
"""
_THREAD = "SELECT thread_id FROM agent_server_a2atask WHERE id = %s"
_GRAPH = """
SELECT graph_id FROM agent_server_assistant
WHERE workspace_id = %s AND deployment_id = %s AND assistant_id = %s AND graph_id = ANY(%s)
"""


class PushRequest(NamedTuple):
    """A checked address that came with a message, and the version of its client."""

    config: PushConfig
    is_legacy: bool


class TaskPage(NamedTuple):
    """A page of tasks, newest first; `next_token` is empty on the last page."""

    tasks: list[TaskView]
    next_token: str
    total: int


def find_graph_id(scope: Scope, assistant_id: UUID) -> str:
    """The graph of an assistant. Raises `AssistantNotFound`."""
    assistants.ensure_system_assistants(scope.route)
    graphs = list(scope.route.graph_ids)
    row = prepared_sql.fetch_row(_GRAPH, [*scope.key, assistant_id, graphs])
    if row is None:
        raise AssistantNotFound(reference=assistant_id)
    graph_id: str = row[0]
    return graph_id


def has_message(scope: Scope, thread_id: UUID, message_id: str) -> bool:
    """Whether a task of the thread has a message with this id."""
    key = dumps_text([{"messageId": message_id}])
    row = prepared_sql.fetch_row(_HAS_MESSAGE, [*scope.key, thread_id, key])
    return row is not None and bool(row[0])


@transaction.atomic
def create(
    scope: Scope,
    *,
    thread_id: UUID,
    context_id: str,
    message: JSONObject,
    body: RunBody,
    push: PushRequest | None = None,
) -> TaskView:
    """Create a task and its run. The thread is created if it is missing."""
    threads.insert(scope, thread_id, scope.owner_metadata)
    task_id = uuid7()
    run = runs.create_on_thread(scope, thread_id, _with_task(body, task_id))
    history = dumps_text([message])
    row = prepared_sql.fetch_row(_INSERT, [task_id, context_id, history, run.run_id])
    task = _submitted((task_id, context_id, thread_id, run.run_id), history, row)
    if push is not None:
        _notify(scope, task, push)
    return task


def _notify(scope: Scope, task: TaskView, push: PushRequest) -> None:
    """Save the address that came with a message; tell it of the task."""
    a2a_push.save(scope, task, push.config, is_legacy=push.is_legacy)
    a2a_push.notify_submitted(task.run_id)


@transaction.atomic
def resume(
    scope: Scope,
    task: TaskView,
    *,
    message: JSONObject,
    body: RunBody,
    push: PushRequest | None = None,
) -> TaskView:
    """Answer the questions of a paused task with a new run of it.

    Raises `A2AError` if the task or its thread has gone on in the meantime.
    """
    row = prepared_sql.fetch_row(_LOCK_PAUSED, [task.id, task.run_id])
    questions = [str(interrupt.get("id")) for interrupt in task.pending_interrupts]
    if row is None or not all(dumps_text(id_) in (row[0] or "") for id_ in questions):
        text = "The task no longer waits for input: its context has received other messages."
        raise A2AError(UNSUPPORTED_OPERATION, text)
    run = runs.create_on_thread(scope, task.thread_id, _with_task(body, task.id))
    question = {**task.status["message"]}
    for name in ("taskId", "contextId"):
        del question[name]
    history = dumps_text([*loads_exact(task.history), question, message])
    row = prepared_sql.fetch_row(_RESUME, [run.run_id, history, task.id])
    ids = (task.id, task.context_id, task.thread_id, run.run_id)
    resumed = _submitted(ids, history, row)
    if push is not None:
        _notify(scope, resumed, push)
    else:
        a2a_push.notify_submitted(run.run_id)
    return resumed


def _submitted(ids: tuple[UUID, str, UUID, UUID], history: str, row: Any) -> TaskView:
    """The task before a worker claims its run, so that a stream begins with this state."""
    return TaskView(*ids, TaskState.SUBMITTED, history, None, None, None, row[0])


def _with_task(body: RunBody, task_id: UUID) -> RunBody:
    return body.model_copy(update={"metadata": {**body.metadata, TASK_KEY: str(task_id)}})


def cancel(scope: Scope, task: TaskView) -> None:
    """Cancel the task, or request it of the worker that executes its run.

    Raises `A2AError` if the task has ended.
    """
    if task.state.is_final:
        raise A2AError(TASK_NOT_CANCELABLE, f"The task has ended: it is {task.state}.")
    if task.state != TaskState.INPUT_REQUIRED:
        cancel_runs.cancel(scope, "interrupt", run_ids=[task.run_id])
    else:
        _cancel_paused(task.id)


@transaction.atomic
def _cancel_paused(task_id: UUID) -> None:
    row = prepared_sql.fetch_row(_CANCEL_PAUSED, [task_id])
    if row is None:
        raise A2AError(TASK_NOT_CANCELABLE, "The task has been resumed.")
    a2a_push.notify_ended(row[0])
    prepared_sql.on_commit(lambda: dispatch.announce_task_changed(row[1]))


def find_thread_pk(task: TaskView) -> UUID | None:
    """The primary key of the task's thread, by which its channel is named."""
    row = prepared_sql.fetch_row(_THREAD, [task.id])
    return None if row is None else row[0]


def get(scope: Scope, assistant_id: UUID, task_id: UUID | str) -> TaskView:
    """A task of the assistant. Raises `A2AError` for one that the caller may not see, too."""
    try:
        parsed = task_id if isinstance(task_id, UUID) else UUID(task_id)
    except ValueError:
        raise A2AError(TASK_NOT_FOUND) from None
    row = prepared_sql.fetch_row(_GET, {**_parameters(scope, assistant_id), "task": parsed})
    if row is None:
        raise A2AError(TASK_NOT_FOUND)
    return _to_view(row)


def list_newest(scope: Scope, assistant_id: UUID, params: ListParams) -> TaskPage:
    """A page of the assistant's tasks that the caller may see."""
    before_time, before_id = _parse_token(params.page_token)
    filters = {
        **_parameters(scope, assistant_id),
        "context": params.context_id,
        "updated_after": params.updated_after,
        "state": params.state.value if params.state else None,
    }
    position = {
        "before_time": before_time,
        "before_id": before_id,
        "limit": params.page_size + 1,
    }
    tasks = [_to_view(row) for row in prepared_sql.fetch_rows(_LIST, {**filters, **position})]
    count = prepared_sql.fetch_row(_COUNT, filters)
    page = tasks[: params.page_size]
    next_token = _encode_token(page[-1]) if len(tasks) > params.page_size else ""
    return TaskPage(page, next_token, count[0] if count is not None else 0)


def _parameters(scope: Scope, assistant_id: UUID) -> JSONObject:
    workspace, deployment = scope.key
    agent = {"workspace": workspace, "deployment": deployment, "visible": scope.visible}
    return {**agent, "assistant": assistant_id}


def _to_view(row: Sequence[Any]) -> TaskView:
    id_, context_id, thread_id, run_id, state, run_status, *columns = row
    if state:
        task_state = TaskState(state)
    else:
        status = None if run_status is None else RunStatus(run_status)
        task_state = _STATE_BY_RUN_STATUS[status] if status else TaskState.CANCELED
    return TaskView(id_, context_id, thread_id, run_id, task_state, *columns)


def _encode_token(task: TaskView) -> str:
    text = f"{task.updated_at.isoformat()} {task.id.hex}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _parse_token(token: str | None) -> tuple[datetime | None, UUID | None]:
    if token is None:
        return None, None
    try:
        time, _, task_id = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        updated_at = datetime.fromisoformat(time)
        if updated_at.tzinfo is None:
            raise ValueError("no time zone")
        return updated_at, UUID(task_id)
    except (ValueError, binascii.Error):
        raise invalid("pageToken: must be the token of the previous page.") from None
