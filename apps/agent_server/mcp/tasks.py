"""Tool calls as tasks (SEP-2663): an id for a call that takes long, to poll, answer and cancel it.

A task is a thread of its own with the runs of one call: the first run, and one more after each
round of answers. Its state is theirs, so it outlives the process that began it, and ends with the
thread. The id names the thread, signed for its caller.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.core import signing

from apps.agent_server import prepared_sql
from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp.asking_runs import LIFETIME_SECONDS, AskingRun, pending
from apps.agent_server.mcp.questions import CAPABILITIES, Question, to_questions
from apps.agent_server.mcp.sessions import caller_tag
from apps.agent_server.scope import Scope
from apps.core.json import loads
from apps.core.mcp.messages import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    JSONObject,
    McpMessage,
    RpcError,
    offered,
)

EXTENSION = "io.modelcontextprotocol/tasks"
GET, UPDATE, CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
METHODS = (GET, UPDATE, CANCEL)
TASK_AFTER_SECONDS = 1.0
"""A call that ends earlier is answered with its result."""
POLL_MILLISECONDS = 1_000
_SALT = "agent_server.mcp.task"
_NEWEST_RUN = """
SELECT r.id, r.status, r.metadata::text, t.created_at, greatest(r.updated_at, t.updated_at),
    t.interrupts::text
FROM agent_server_thread t JOIN agent_server_agentrun r ON r.thread_id = t.id
WHERE t.workspace_id = %s AND t.deployment_id = %s AND t.thread_id = %s AND NOT t.temporary
  AND t.metadata @> %s::jsonb AND r.metadata @> '{"mcp_task": true}'
ORDER BY r.sequence DESC LIMIT 1
"""


class TaskId(NamedTuple):
    """What the id of a task says: its assistant and thread, and what its client answers."""

    assistant_id: UUID
    thread_id: UUID
    capabilities: frozenset[str]

    def sign(self, admission: Admission) -> str:
        letters = "".join(name[0] for name in CAPABILITIES if name in self.capabilities)
        members = [caller_tag(admission), self.assistant_id.hex, self.thread_id.hex, letters]
        return signing.dumps(members, salt=_SALT)


class TaskRun(NamedTuple):
    """The newest run of a task, and what the thread has of it."""

    run: AskingRun
    status: str
    created_at: datetime
    """Of the task."""
    updated_at: datetime
    questions: list[Question]
    """Those that are open."""


def read_id(admission: Admission, message: McpMessage) -> TaskId:
    """The id in a request for a task. Raises `RpcError` unless it is one of the caller's."""
    task_id = message.params.get("taskId")
    try:
        members = signing.loads(str(task_id), salt=_SALT, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        raise unknown_task() from None
    tag, assistant_id, thread_id, letters = members
    if tag != caller_tag(admission):
        raise unknown_task()
    capabilities = frozenset(name for name in CAPABILITIES if name[0] in letters)
    return TaskId(UUID(assistant_id), UUID(thread_id), capabilities)


def unknown_task() -> RpcError:
    return RpcError(INVALID_PARAMS, "taskId: there is no such task, or it has expired.")


def read_run(scope: Scope, thread_id: UUID) -> TaskRun:
    """The newest run of the task's thread. Raises `RpcError` if the caller sees none."""
    row = prepared_sql.fetch_row(_NEWEST_RUN, [*scope.key, thread_id, scope.visible])
    if row is None:
        raise unknown_task()
    run_id, status, metadata, created_at, updated_at, interrupts = row
    run = AskingRun(run_id, loads(metadata))
    questions = to_questions(pending(interrupts))
    return TaskRun(run, status, created_at, updated_at, questions)


def is_offered(message: McpMessage) -> bool:
    """Whether the client takes a task for the result of this request."""
    return bool(offered(message.capabilities.get("extensions"), [EXTENSION]))


def require_extension(message: McpMessage) -> None:
    """Raise `RpcError` unless the client knows tasks."""
    if not is_offered(message):
        raise RpcError(
            MISSING_CAPABILITY,
            f"The client must declare the extension {EXTENSION}.",
            status=400,
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def describe(task_id: str, task: TaskRun, status: str, **payload: Any) -> JSONObject:
    """A task as the protocol writes it; `payload` is what belongs to its status."""
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": task.created_at.isoformat(),
        "lastUpdatedAt": task.updated_at.isoformat(),
        "ttlMs": LIFETIME_SECONDS * 1000,
        "pollIntervalMs": POLL_MILLISECONDS,
        **payload,
    }


def key_of(task: TaskRun, question: Question) -> str:
    """The key of a question, which is another one in each round."""
    return f"{task.run.id}:{question.key}"


def unanswered(task: TaskRun, selection: Collection[Question]) -> dict[str, Question]:
    """The questions without an answer, by the keys that the client sees."""
    answers = task.run.answers
    return {key_of(task, one): one for one in selection if one.key not in answers}
