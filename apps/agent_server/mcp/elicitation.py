"""Questions of graphs to the users of MCP clients: interrupts as `elicitation/create`.

A client of 2026-07-28 gets the questions as the result of its call, and repeats the call with the
answers and the state that it got. A client with a session gets a request on the stream of its call
and answers with a POST, which any web process receives. The POST stores the answer with the run
that asks, and resumes it with the last answer; the call follows, woken over Redis or by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.core import signing

from apps.agent_server import prepared_sql
from apps.agent_server.a2a.content import to_question_parts
from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp.sessions import Session, caller_tag
from apps.agent_server.schemas.threads import TTL
from apps.agent_server.scope import Scope
from apps.agent_server.services.graph_schemas import find_problem
from apps.core.json import dumps, dumps_text, loads, loads_exact
from apps.core.mcp.messages import INVALID_PARAMS, JSONObject, RpcError

CAPABILITY = "elicitation"
ANSWER = "answer"
"""The field of the form that the user fills in."""
LIFETIME_SECONDS = 24 * 3600
"""The time in which a question can be answered; its thread is deleted later."""
TIME_TO_LIVE = TTL(ttl=LIFETIME_SECONDS / 60 + 60)
MAX_ANSWER_BYTES = 64 * 1024
SCHEMA_FIELD = "requestedSchema"
MAX_SCHEMA_BYTES = 16 * 1024
_FIELD_TYPES = ("string", "number", "integer", "boolean", "array")
_SALT = "agent_server.mcp.elicitation"
_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}


class Declined(Exception):
    """The user does not answer."""


def pending(interrupts: str | None) -> list[JSONObject]:
    """The open questions of a thread, from its column."""
    by_task = loads_exact(interrupts or "{}")
    return [interrupt for members in by_task.values() for interrupt in members]


def to_requests(interrupts: Iterable[JSONObject]) -> dict[str, JSONObject]:
    """The requests for the answers, by the ids of the interrupts.

    A graph names the fields of the form by `requestedSchema` in the value of its interrupt;
    otherwise the form is one text.
    """
    return {
        str(interrupt["id"]): {
            "method": "elicitation/create",
            "params": {
                "message": _question(interrupt),
                "requestedSchema": _form(interrupt) or _SCHEMA,
            },
        }
        for interrupt in interrupts
    }


def _form(interrupt: JSONObject) -> JSONObject | None:
    """The schema that the graph asks for, if clients can show it: fields without nesting."""
    value = interrupt.get("value")
    schema = value.get(SCHEMA_FIELD) if isinstance(value, dict) else None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    is_flat = isinstance(properties, dict) and all(
        isinstance(name, str) and isinstance(field, dict) and field.get("type") in _FIELD_TYPES
        for name, field in properties.items()
    )
    if not is_flat or not isinstance(required, list) or len(dumps(schema)) > MAX_SCHEMA_BYTES:
        return None
    return {"type": "object", "properties": properties, "required": required}


def _question(interrupt: JSONObject) -> str:
    texts = [str(part["text"]) for part in to_question_parts([interrupt]) if "text" in part]
    if texts:
        return texts[0]
    value = interrupt.get("value")
    members = list(value.values()) if isinstance(value, dict) else []
    is_text = len(members) == 1 and isinstance(members[0], str)
    return str(members[0]) if is_text else dumps_text(value)


def to_resume_value(interrupts: Iterable[JSONObject], responses: Any) -> Any:
    """The value that resumes the run: one answer, or several by interrupt.

    Raises `Declined`, or `RpcError` if an answer is missing or has another form.
    """
    if not isinstance(responses, dict):
        raise RpcError(INVALID_PARAMS, "inputResponses: must be an object.")
    answers = {
        str(interrupt["id"]): _read_answer(interrupt, responses.get(str(interrupt["id"])))
        for interrupt in interrupts
    }
    if not answers:
        raise RpcError(INVALID_PARAMS, "requestState: the call does not wait for input any more.")
    return next(iter(answers.values())) if len(answers) == 1 else answers


def _read_answer(interrupt: JSONObject, response: Any) -> Any:
    """The text of the user, or the fields of the form that the graph asked for."""
    action = response.get("action") if isinstance(response, dict) else None
    if action in {"decline", "cancel"}:
        raise Declined
    content = response.get("content") if isinstance(response, dict) else None
    if action != "accept" or not isinstance(content, dict):
        raise RpcError(INVALID_PARAMS, "inputResponses: each must have an action and content.")
    form = _form(interrupt)
    problem = find_problem(form or _SCHEMA, content)
    if problem is not None:
        raise RpcError(INVALID_PARAMS, f"inputResponses: {problem}")
    return content[ANSWER] if form is None else content


# The state that a client without a session carries


def sign_state(admission: Admission, tool: str, thread_id: UUID) -> str:
    """The thread of a call, for its caller and its tool alone."""
    return signing.dumps([caller_tag(admission), tool, thread_id.hex], salt=_SALT)


def read_state(admission: Admission, tool: str, state: Any) -> UUID:
    """Return the thread of the call. Raises `RpcError` for a state of others."""
    try:
        tag, name, thread_id = signing.loads(str(state), salt=_SALT, max_age=LIFETIME_SECONDS)
    except signing.BadSignature:
        tag = name = thread_id = ""
    if (tag, name) != (caller_tag(admission), tool):
        raise RpcError(INVALID_PARAMS, "requestState: is unknown or has expired.")
    return UUID(thread_id)


# The answers of a client with a session

SESSION_KEY, REQUEST_KEY = "mcp_session", "mcp_request_id"
"""Metadata of a run by which its client can cancel and answer it."""
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
    """A run that ended with questions to the user of its client, and what came of them."""

    id: UUID
    metadata: JSONObject

    @property
    def answers(self) -> JSONObject:
        """The client's results by interrupt; null for an error."""
        answers: JSONObject = self.metadata.get(_ANSWERS_KEY, {})
        return answers

    @property
    def next_run(self) -> UUID | None:
        """The run with the answers."""
        run_id = self.metadata.get(_NEXT_RUN_KEY)
        return None if run_id is None else UUID(run_id)

    @property
    def problem(self) -> str | None:
        """Why the answers start no run."""
        problem: str | None = self.metadata.get(_PROBLEM_KEY)
        return problem

    def add(self, scope: Scope, **metadata: Any) -> None:
        prepared_sql.execute(_ADD_METADATA, [dumps_text(metadata), *scope.key, self.id])
        self.metadata.update(metadata)

    def add_answer(self, scope: Scope, interrupt_id: str, result: Any) -> None:
        self.add(scope, **{_ANSWERS_KEY: {**self.answers, interrupt_id: result}})

    def set_next_run(self, scope: Scope, run_id: UUID) -> None:
        self.add(scope, **{_NEXT_RUN_KEY: str(run_id)})

    def set_problem(self, scope: Scope, problem: str) -> None:
        self.add(scope, **{_PROBLEM_KEY: problem})


class LockedRun(NamedTuple):
    """An asking run, its thread, and the fields that the run with the answers takes over."""

    run: AskingRun
    thread_id: UUID
    run_fields: JSONObject


def request_id_of(run_id: UUID, interrupt_id: str) -> str:
    return f"{run_id}:{interrupt_id}"


def lock_asking(scope: Scope, session: Session, run_id: UUID) -> LockedRun | None:
    """Lock the thread of a run of the session; None if there is no run with the id."""
    key = dumps_text({SESSION_KEY: session.token})
    thread = prepared_sql.fetch_row(_LOCK_THREAD, [*scope.key, run_id, key])
    row = prepared_sql.fetch_row(_READ_RUN, [*scope.key, run_id]) if thread else None
    if thread is None or row is None:
        return None
    assistant_id, metadata, kwargs = row
    run = AskingRun(run_id, loads(metadata))
    fields = {
        "assistant_id": str(assistant_id),
        "stream_mode": loads(kwargs)["stream_mode"],
        "metadata": {name: run.metadata[name] for name in (SESSION_KEY, REQUEST_KEY)},
    }
    return LockedRun(run, thread[0], fields)


def read_asking(scope: Scope, run_id: UUID) -> AskingRun | None:
    row = prepared_sql.fetch_row(_READ_RUN, [*scope.key, run_id])
    return None if row is None else AskingRun(run_id, loads(row[1]))


def parse_request_id(request_id: str | int) -> tuple[UUID, str] | None:
    """The run and the interrupt of a request of the server; None for any other id."""
    run_id, _, interrupt_id = str(request_id).partition(":")
    try:
        return UUID(run_id), interrupt_id
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
