"""The result of an attempt: run and thread rows, last stream events, response of `wait`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from apps.agent_runtime.db.write_batch import STATE_UNKNOWN, ClaimedRun, RunEnd
from apps.agent_server.a2a import statements as a2a
from apps.agent_server.run_state_sql import CANCELLED_ERROR
from apps.agent_server.webhooks import statements as webhooks
from apps.core.json import Fragment, dumps, loads, storable
from apps.graph_host.wire import MALFORMED, as_bytes

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RunResult:
    """How an attempt ended."""

    run_end: RunEnd
    error_event: bytes | None
    response: bytes
    """JSON that `wait` returns."""
    closing_events: Sequence[tuple[str, bytes]] = ()
    """Last events other than `error`; published only after the commit."""


HOST_FIELDS = frozenset(
    (
        "status",
        "error",
        "values",
        "state",
        "interrupts",
        "asks",
        "unfinished",
        "closing",
        "is_state_partial",
    )
)
"""Fields of a host's `done` frame. The engine's own outcomes have further fields."""


def build_result(run: ClaimedRun, outcome: dict[str, Any], *, timed_out: bool = False) -> RunResult:
    """Convert an outcome to the result. A host's malformed outcome is an error of the run."""
    try:
        return _build_result(run, outcome, timed_out=timed_out)
    except MALFORMED as error:
        logger.warning("The host of run %s sent a malformed outcome: %s", run.run_id, error)
        message = f"The graph host reported a malformed result: {error}"
        failure = {
            "status": "error",
            "error": {"error": "GraphHostError", "message": message},
            "is_state_unknown": True,
        }
        return _build_result(run, failure, timed_out=False)


def _build_result(run: ClaimedRun, outcome: dict[str, Any], *, timed_out: bool) -> RunResult:
    status, error = str(outcome.get("status")), outcome.get("error")
    is_unfinished = bool(outcome.get("unfinished"))
    if status == "cancelled" and timed_out:
        status, error = "timeout", {"error": "TimeoutError", "message": "The run took too long."}
    elif status == "cancelled":
        status, error = "interrupted", loads(CANCELLED_ERROR)
    elif status != "success":
        status = "error"
        error = error or {
            "error": "RuntimeError",
            "message": "The graph host reported no error message.",
        }
    thread_status = {
        "success": "interrupted" if is_unfinished else "idle",
        "interrupted": "interrupted",
    }.get(status, "error")
    values, state = outcome.get("values"), outcome.get("state")
    run_end = RunEnd(run.token, run.thread, status, thread_status)
    run_end.is_last = run.temporary
    run_end.is_unreported = bool(outcome.get("is_unreported"))
    run_end.has_webhook = webhooks.WEBHOOK_MARKER in run.kwargs
    run_end.has_task = a2a.TASK_MARKER in run.metadata
    if error is not None and not isinstance(error, dict):
        raise TypeError("an error must be an object")
    if error is not None:
        run_end.error = storable(dumps(error)).decode()
    if outcome.get("is_state_unknown"):
        run_end.state = STATE_UNKNOWN
    elif values is not None and outcome.get("is_state_partial"):
        # Reads of the state call the graph, which may be able to prepare its tasks then.
        run_end.values, run_end.state = as_bytes(values).decode(), STATE_UNKNOWN
        run_end.size = len(run_end.values)
    elif values is not None and state is not None:
        values_json = as_bytes(values)
        run_end.values = values_json.decode()
        run_end.state = (b'{"values":' + values_json + b"," + as_bytes(state)[1:]).decode()
        run_end.interrupts = as_bytes(outcome.get("interrupts") or b"{}").decode()
        run_end.size = 2 * len(values_json)
    has_failed = status in ("error", "timeout")
    return RunResult(
        run_end,
        error_event=dumps(error) if has_failed else None,
        response=_build_response(
            as_bytes(values or b"{}"), outcome.get("asks"), error if has_failed else None
        ),
        closing_events=[(str(name), as_bytes(data)) for name, data in outcome.get("closing") or ()],
    )


def _build_response(values: bytes, interrupts: bytes | None, error: dict[str, Any] | None) -> bytes:
    """Build the response of `wait`: the values with `__interrupt__`, or `__error__` alone."""
    if error is not None:
        return dumps({"__error__": error})
    if not interrupts:
        return values
    field = b'"__interrupt__":' + as_bytes(interrupts)
    if not values.startswith(b"{"):
        return b"{" + field + b"}"
    return values[:-1] + (b"," if len(values) > 2 else b"") + field + b"}"


class _Task(msgspec.Struct):
    id: str
    interrupts: msgspec.Raw


class _Snapshot(msgspec.Struct):
    """A thread's state from a graph host; large parts stay encoded."""

    created_at: str | None
    values: msgspec.Raw
    tasks: list[_Task]
    graph_error: Any = None


_snapshot_decoder = msgspec.json.Decoder(_Snapshot)


def add_state(result: RunResult, snapshot: bytes) -> None:
    """Complete a result of unknown state with the thread's state as read by a graph host."""
    state = _snapshot_decoder.decode(snapshot)
    if state.created_at is None:
        return
    run_end, values = result.run_end, bytes(state.values)
    interrupts = {
        task.id: Fragment(task.interrupts)
        for task in state.tasks
        if bytes(task.interrupts) not in (b"[]", b"null")
    }
    run_end.values = values.decode()
    if state.graph_error is not None:
        return
    run_end.state = snapshot.decode()
    run_end.interrupts = dumps(interrupts).decode()
    run_end.size = 2 * len(snapshot)
    if result.error_event is None:
        result.response = values
