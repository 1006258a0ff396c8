"""The methods of MCP for tasks: state, answers and cancellation of a long tool call."""

from __future__ import annotations

import contextlib
from typing import Any

from django.db import transaction

from apps.agent_server import results
from apps.agent_server.endpoints import mcp_calls
from apps.agent_server.endpoints.mcp_calls import respond
from apps.agent_server.mcp import asking_runs, questions, tasks, tools
from apps.agent_server.mcp.questions import Declined, read_answer
from apps.agent_server.mcp.tasks import TaskId, TaskRun
from apps.agent_server.scope import Action, Scope
from apps.agent_server.services import cancel_runs
from apps.agent_server.statuses import OPEN, RunStatus
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core.json import loads_exact
from apps.core.mcp.messages import JSONObject, McpMessage, RpcError
from apps.core.mcp.server import failure
from apps.organizations.permissions import Permission


def handle(context: HttpRequestContext, message: McpMessage) -> Response:
    """Answer `tasks/get`, `tasks/update` or `tasks/cancel` of a stateless client."""
    is_read = message.method == tasks.GET
    context.admit(Permission.AGENTS_READ if is_read else Permission.AGENTS_RUN).user()
    tasks.require_extension(message)
    task_id = tasks.read_id(context.admission, message)
    if is_read:
        return respond(context, message, _get(context, message, task_id))
    if message.method == tasks.UPDATE:
        _update(context, message, task_id)
    else:
        _cancel(context, task_id)
    return respond(context, message, {})


def _get(context: HttpRequestContext, message: McpMessage, task_id: TaskId) -> JSONObject:
    scope = _scope_of(context, task_id, "read")
    task = tasks.read_run(scope, task_id.thread_id)
    status, payload = _state_of(scope, task, task_id)
    return tasks.describe(message.params["taskId"], task, status, **payload)


def _scope_of(context: HttpRequestContext, task_id: TaskId, action: Action) -> Scope:
    return context.admission.resolve_scope("threads", action, thread_id=str(task_id.thread_id))


def _state_of(scope: Scope, task: TaskRun, task_id: TaskId) -> tuple[str, dict[str, Any]]:
    """The status of a task, with what belongs to it: the result, the error or the questions."""
    if task.run.is_cancelled or task.status == RunStatus.INTERRUPTED:
        return "cancelled", {}
    if task.status in OPEN:
        return "working", {}
    if task.run.problem is not None:
        return "completed", {"result": failure(task.run.problem)}
    if task.status == RunStatus.SUCCESS and task.questions:
        try:
            selection = questions.select(task.questions, task_id.capabilities)
        except RpcError as error:
            return "failed", {"statusMessage": error.message, "error": error.as_object()}
        requests = tasks.unanswered(task, selection)
        return "input_required", {
            "inputRequests": {key: one.as_request() for key, one in requests.items()}
        }
    # The scope filters threads, and the caller has already called the tool.
    tool = tools.get(scope.unfiltered(), task_id.assistant_id)
    output = loads_exact(results.wait_result(scope, task.run.id))
    return "completed", {"result": mcp_calls.to_call_result(output, tool, has_links=True)}


@transaction.atomic
def _update(context: HttpRequestContext, message: McpMessage, task_id: TaskId) -> None:
    """Store the answers to open questions; the last one starts the task's next run.

    Answers to other questions are ignored. Raises `RpcError` for one that is malformed.
    """
    assert message.id is not None  # noqa: S101 - only requests have methods of tasks
    responses = questions.read_responses(message.params.get("inputResponses"))
    asking_runs.check_size(message.id, responses)
    scope = _scope_of(context, task_id, "update")
    task = tasks.read_run(scope, task_id.thread_id)
    locked = asking_runs.lock_asking(scope, task.run.id)
    if locked is None:
        raise tasks.unknown_task()
    task = task._replace(run=locked.run)
    if task.status != RunStatus.SUCCESS or locked.run.is_answered or not task.questions:
        return
    selection = questions.select(task.questions, task_id.capabilities)
    answers: JSONObject = {}
    for key, question in tasks.unanswered(task, selection).items():
        if key in responses:
            answers[question.key] = responses[key]
            with contextlib.suppress(Declined):
                read_answer(question, responses[key])
    locked.run.add_answers(scope, answers)
    if all(question.key in locked.run.answers for question in selection):
        mcp_calls.resume(context, scope, locked, task.questions)


@transaction.atomic
def _cancel(context: HttpRequestContext, task_id: TaskId) -> None:
    """Stop the task's run, or mark it if it waits for answers. An ended task stays as it is."""
    scope = _scope_of(context, task_id, "update")
    task = tasks.read_run(scope, task_id.thread_id)
    if task.status in OPEN:
        cancel_runs.cancel(scope, "interrupt", run_ids=[task.run.id])
        return
    locked = asking_runs.lock_asking(scope, task.run.id)
    if locked is not None and task.questions and not locked.run.is_answered:
        locked.run.cancel(scope)
