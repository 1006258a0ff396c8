"""What a run leaves for those who waited, read from PostgreSQL.

The worker sends it along with the run's last event; this is for who comes later, and for results
that are too large to be sent or were lost with Redis.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server.scope import Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import RunOutcome
from apps.agent_server.statuses import RunStatus
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.streams import END, Event
from apps.core.errors import AppError
from apps.core.json import Fragment, dumps

RUN_NOT_FOUND = dumps({"__error__": {"error": "HTTPException", "message": "404: Run not found"}})
FAILED = frozenset({RunStatus.ERROR, RunStatus.TIMEOUT})
UNKNOWN_ERROR = {"error": "RuntimeError", "message": "The run failed."}


def refusal_result(error: AppError) -> bytes:
    """The answer for who waited and may stay no longer; the status is out by then."""
    said = {"error": "HTTPException", "message": f"{error.status}: {error.detail}"}
    return dumps({"__error__": said})


def wait_result(scope: Scope, run_id: UUID) -> bytes:
    """The answer of `wait`: the values with the questions among them, or the error alone."""
    ended = runs.read_outcome(scope, run_id)
    if ended is None:
        return b"{}"
    if ended.status in FAILED:
        return dumps({"__error__": ended.error or UNKNOWN_ERROR})
    asked = [{**question, "response_schema": None} for question in _questions(ended)]
    return _values_with(ended, asked)


def join_result(scope: Scope, run_id: UUID, end: Event | None) -> bytes:
    """The answer of `join`: the thread's values as they are now, later runs' included.

    `end` is there when the caller waited for it: then the questions come beside the values.
    """
    ended = runs.read_outcome(scope, run_id)
    if ended is None:  # rolled back, or deleted
        return b"{}"
    if ended.status in FAILED:
        return dumps({"__error__": ended.error or UNKNOWN_ERROR})
    asked = _questions(ended)
    if asked and end is None:
        return dumps({"__interrupt__": asked})
    return _values_with(ended, asked)


def render_lost_end(scope: Scope, run_id: UUID) -> bytes:
    """The last frame of a stream whose end was lost with Redis."""
    ended = runs.read_outcome(scope, run_id)
    if ended is not None and ended.status in FAILED:
        return sse.frame(sse.ERROR, dumps(ended.error or UNKNOWN_ERROR))
    return sse.frame(END, dumps({"status": ended.status if ended else "gone"}))


def _questions(ended: RunOutcome) -> list[dict[str, Any]]:
    return [question for asked in (ended.interrupts or {}).values() for question in asked]


def _values_with(ended: RunOutcome, asked: list[dict[str, Any]]) -> bytes:
    values = (ended.values or "{}").encode()
    if not asked:
        return values if values[:1] in {b"{", b"["} else dumps({"values": Fragment(values)})
    marker = b'"__interrupt__": ' + dumps(asked)
    if not values.startswith(b"{"):
        return b"{" + marker + b"}"
    return values[:-1] + (b", " if len(values) > len(b"{}") else b"") + marker + b"}"
