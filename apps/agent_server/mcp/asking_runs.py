"""Runs that ended with questions to an MCP client, and the answers that continue them.

A client of 2026-07-28 gets the questions as the result of its call, and repeats the call with the
answers and a signed state. A client with a session gets requests on the stream of its call and
answers each with a POST, which any web process receives. The POST stores the answer with the run
that asks, and resumes it with the last answer; the call follows, woken over Redis or by itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.core import signing

from apps.agent_server import prepared_sql
from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp.sessions import Session, caller_tag
from apps.agent_server.schemas.threads import TTL
from apps.agent_server.scope import Scope
from apps.core.json import dumps, dumps_text, loads, loads_exact
from apps.core.mcp.messages import INVALID_PARAMS, JSONObject, RpcError

LIFETIME_SECONDS = 24 * 3600
"""The time in which a question can be answered; its thread is deleted later."""
TIME_TO_LIVE = TTL(ttl=LIFETIME_SECONDS / 60 + 60)
MAX_ANSWER_BYTES = 64 * 1024
_SALT = "agent_server.mcp.call"


def pending(interrupts: str | None) -> list[JSONObject]:
    """The open interrupts of a thread, from its column."""
    by_task = loads_exact(interrupts or "{}")
    return [interrupt for members in by_task.values() for interrupt in members]


class CallState(NamedTuple):
    """A call that waits for its client: the tool, and the run that asks."""

    tool: str
    thread_id: UUID
    run_id: UUID

    def sign(self, admission: Admission) -> str:
        """The state as its client carries it, valid for this caller alone."""
        members = [caller_tag(admission), self.tool, self.thread_id.hex, self.run_id.hex]
        return signing.dumps(members, salt=_SALT)


def read_state(admission: Admission, state: Any) -> CallState | None:
    """The state that the caller carries; None for any other."""
    try:
        members = signing.loads(str(state), salt=_SALT, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        return None
    tag, tool, thread_id, run_id = members
    is_own = tag == caller_tag(admission)
    return CallState(tool, UUID(thread_id), UUID(run_id)) if is_own else None


SESSION_KEY, REQUEST_KEY = "mcp_session", "mcp_request_id"
"""Metadata of a run by which its client can cancel and answer it."""
TASK_KEY = "mcp_task"
"""Metadata of the runs of a call that may be a task."""
_KEPT_KEYS = (SESSION_KEY, REQUEST_KEY, TASK_KEY)
_CANCELLED_KEY = "mcp_cancelled"
_ANSWERS_KEY, _NEXT_RUN_KEY, _PROBLEM_KEY = "mcp_answers", "mcp_next_run", "mcp_problem"
"""Metadata of a run whose questions were answered."""
# The thread first, as all code locks.
_LOCK_THREAD = """
SELECT thread_id FROM agent_server_thread WHERE id = (
    SELECT thread_id FROM agent_server_agentrun
    WHERE workspace_id = %s AND deployment_id = %s AND id = %s AND metadata @> %s::jsonb
) FOR NO KEY UPDATE
"""
_READ_RUN = """
SELECT assistant_id, metadata::text, kwargs::text FROM agent_server_agentrun
WHERE workspace_id = %s AND deployment_id = %s AND id = %s
"""
_ADD_METADATA = """
UPDATE agent_server_agentrun SET metadata = metadata || %s::jsonb
WHERE workspace_id = %s AND deployment_id = %s AND id = %s
"""


def metadata_of(session: Session, request_id: str | int | None) -> JSONObject:
    """The metadata of the runs of a client's call."""
    return {SESSION_KEY: session.token, REQUEST_KEY: request_id}


@dataclass(frozen=True, slots=True)
class AskingRun:
    """A run that ended with questions to the user of its client, and what came of them.

    Clients create runs with metadata of their own, so any of its values may be forged.
    """

    id: UUID
    metadata: JSONObject

    @property
    def answers(self) -> JSONObject:
        """The client's results by the keys of questions; null for an error."""
        answers = self.metadata.get(_ANSWERS_KEY)
        return answers if isinstance(answers, dict) else {}

    @property
    def next_run(self) -> UUID | None:
        """The run with the answers."""
        return _to_uuid(self.metadata.get(_NEXT_RUN_KEY))

    @property
    def problem(self) -> str | None:
        """Why the answers start no run."""
        problem = self.metadata.get(_PROBLEM_KEY)
        return problem if isinstance(problem, str) else None

    @property
    def is_cancelled(self) -> bool:
        """Whether its client cancelled it instead of answering."""
        return bool(self.metadata.get(_CANCELLED_KEY))

    @property
    def is_answered(self) -> bool:
        """Whether its questions are no longer open: another run has the answers, or none will."""
        return self.next_run is not None or self.problem is not None or self.is_cancelled

    def add(self, scope: Scope, **metadata: Any) -> None:
        prepared_sql.execute(_ADD_METADATA, [dumps_text(metadata), *scope.key, self.id])
        self.metadata.update(metadata)

    def add_answers(self, scope: Scope, answers: JSONObject) -> None:
        self.add(scope, **{_ANSWERS_KEY: {**self.answers, **answers}})

    def set_next_run(self, scope: Scope, run_id: UUID) -> None:
        self.add(scope, **{_NEXT_RUN_KEY: str(run_id)})

    def cancel(self, scope: Scope) -> None:
        self.add(scope, **{_CANCELLED_KEY: True})

    def set_problem(self, scope: Scope, problem: str) -> None:
        self.add(scope, **{_PROBLEM_KEY: problem})


class LockedRun(NamedTuple):
    """An asking run, its thread, and the fields that the run with the answers takes over."""

    run: AskingRun
    thread_id: UUID
    run_fields: JSONObject


def request_id_of(run_id: UUID, key: str) -> str:
    return f"{run_id}:{key}"


def lock_asking(scope: Scope, run_id: UUID, session: Session | None = None) -> LockedRun | None:
    """Lock the thread of a run, of the session if there is one; None without such a run."""
    key = dumps_text({SESSION_KEY: session.token} if session else {})
    thread = prepared_sql.fetch_row(_LOCK_THREAD, [*scope.key, run_id, key])
    row = prepared_sql.fetch_row(_READ_RUN, [*scope.key, run_id]) if thread else None
    if thread is None or row is None:
        return None
    assistant_id, metadata, kwargs = row
    run = AskingRun(run_id, loads(metadata))
    fields = {
        "assistant_id": str(assistant_id),
        "stream_mode": loads(kwargs)["stream_mode"],
        "metadata": {name: run.metadata[name] for name in _KEPT_KEYS if name in run.metadata},
    }
    return LockedRun(run, thread[0], fields)


def read_asking(scope: Scope, run_id: UUID) -> AskingRun | None:
    row = prepared_sql.fetch_row(_READ_RUN, [*scope.key, run_id])
    return None if row is None else AskingRun(run_id, loads(row[1]))


def parse_request_id(request_id: str | int) -> tuple[UUID, str] | None:
    """The run and the key of a request of the server; None for any other id."""
    text, _, key = str(request_id).partition(":")
    run_id = _to_uuid(text)
    return None if run_id is None else (run_id, key)


def _to_uuid(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def check_size(request_id: str | int, response: JSONObject) -> None:
    """Raise `RpcError` for an answer that is too long."""
    if len(dumps(response)) > MAX_ANSWER_BYTES:
        text = f"An answer has at most {MAX_ANSWER_BYTES} bytes."
        raise RpcError(INVALID_PARAMS, text, status=400, request_id=request_id)


def channel(run_id: UUID) -> str:
    return f"slipway:mcp:{run_id}"


class AnswerListener:
    """Wakes a call when a question of its run was answered, or Redis may have lost the message."""

    def __init__(self, run_id: UUID, woken: asyncio.Event) -> None:
        self.channel = channel(run_id).encode()
        self._woken = woken

    def on_message(self, _: bytes) -> None:
        self._woken.set()

    def mark_stale(self) -> None:
        self._woken.set()
