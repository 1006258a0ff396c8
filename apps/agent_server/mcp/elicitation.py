"""Questions of graphs to the users of MCP clients: interrupts as `elicitation/create`.

A client of 2026-07-28 gets the questions as the result of its call, and repeats the call with the
answers and the state that it got. A client with a session gets a request on the stream of its call
and answers with a POST, which any web process receives and publishes in Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.core import signing

from apps.agent_server.a2a.content import to_question_parts
from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp.sessions import caller_tag
from apps.agent_server.schemas.threads import TTL
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


def channel(session: str) -> str:
    return f"slipway:mcp:{session}"


def pack_response(request_id: str | int, response: JSONObject) -> bytes:
    """Raises `RpcError` for an answer that is too long."""
    payload = dumps([request_id, response])
    if len(payload) > MAX_ANSWER_BYTES:
        text = f"An answer has at most {MAX_ANSWER_BYTES} bytes."
        raise RpcError(INVALID_PARAMS, text, status=400, request_id=request_id)
    return payload


class AnswerListener:
    """Collects the client's responses to the requests of one call."""

    def __init__(self, session: str, expected: Iterable[str]) -> None:
        self.channel = channel(session).encode()
        self.woken = asyncio.Event()
        self.is_subscribed = asyncio.Event()
        self.responses: dict[str, JSONObject] = {}
        """By the id of the server's request."""
        self._expected = set(expected)

    @property
    def is_complete(self) -> bool:
        return self.responses.keys() == self._expected

    def on_message(self, payload: bytes) -> None:
        request_id, response = loads(payload)
        if request_id in self._expected:
            self.responses.setdefault(request_id, response)
            self.woken.set()

    def mark_stale(self) -> None:
        self.is_subscribed.set()
