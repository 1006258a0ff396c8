"""Responses of `wait` and `join`, read from PostgreSQL.

The worker sends the result with the run's last event. These functions serve later callers, and
results that are too large for Redis or were lost with it.
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
    """The body for a waiting caller whose access ended after the status line was sent."""
    body = {"error": "HTTPException", "message": f"{error.status}: {error.detail}"}
    return dumps({"__error__": body})


def wait_result(scope: Scope, run_id: UUID) -> bytes:
    """The response of `wait`: the values with the interrupts in them, or the error alone."""
    outcome = runs.read_outcome(scope, run_id)
    if outcome is None:
        return b"{}"
    if outcome.status in FAILED:
        return dumps({"__error__": outcome.error or UNKNOWN_ERROR})
    interrupts = [{**interrupt, "response_schema": None} for interrupt in _interrupts(outcome)]
    return _values_with(outcome, interrupts)


def join_result(scope: Scope, run_id: UUID, end: Event | None) -> bytes:
    """The response of `join`: the thread's current values, which a later run may have written.

    If the caller waited for `end`, the interrupts are added to the values.
    """
    outcome = runs.read_outcome(scope, run_id)
    if outcome is None:  # rolled back, or deleted
        return b"{}"
    if outcome.status in FAILED:
        return dumps({"__error__": outcome.error or UNKNOWN_ERROR})
    interrupts = _interrupts(outcome)
    if interrupts and end is None:
        return dumps({"__interrupt__": interrupts})
    return _values_with(outcome, interrupts)


def render_lost_end(scope: Scope, run_id: UUID) -> bytes:
    """The last frame of a stream whose `end` event was lost with Redis."""
    outcome = runs.read_outcome(scope, run_id)
    if outcome is not None and outcome.status in FAILED:
        return sse.encode_event(sse.ERROR, dumps(outcome.error or UNKNOWN_ERROR))
    return sse.encode_event(END, dumps({"status": outcome.status if outcome else "gone"}))


def _interrupts(outcome: RunOutcome) -> list[dict[str, Any]]:
    return [
        interrupt
        for task_interrupts in (outcome.interrupts or {}).values()
        for interrupt in task_interrupts
    ]


def _values_with(outcome: RunOutcome, interrupts: list[dict[str, Any]]) -> bytes:
    values = (outcome.values or "{}").encode()
    if not interrupts:
        return values if values[:1] in {b"{", b"["} else dumps({"values": Fragment(values)})
    field = b'"__interrupt__": ' + dumps(interrupts)
    if not values.startswith(b"{"):
        return b"{" + field + b"}"
    return values[:-1] + (b", " if len(values) > len(b"{}") else b"") + field + b"}"
