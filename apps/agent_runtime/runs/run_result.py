"""The result of an attempt: run and thread rows, last stream events, response of `wait`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.agent_runtime.db.write_batch import STATE_UNKNOWN, ClaimedRun, RunEnd
from apps.agent_server.run_state_sql import CANCELLED
from apps.agent_server.webhooks import statements as webhooks
from apps.core.json import dumps, loads, storable


@dataclass(slots=True)
class RunResult:
    """How an attempt ended."""

    run_end: RunEnd
    error_event: bytes | None
    response: bytes
    """JSON that `wait` returns."""
    closing_events: Sequence[tuple[str, bytes]] = ()
    """Last events other than `error`; published only after the commit."""


def build_result(run: ClaimedRun, done: dict[str, Any], *, timed_out: bool = False) -> RunResult:
    """The result for the payload of a host's `done` frame."""
    status, error = str(done.get("status")), done.get("error")
    unfinished = bool(done.get("unfinished"))
    if status == "cancelled" and timed_out:
        status, error = "timeout", {"error": "TimeoutError", "message": "The run took too long."}
    elif status == "cancelled":
        status, error = "interrupted", loads(CANCELLED)
    elif status != "success":
        status = "error"
        error = error or {
            "error": "RuntimeError",
            "message": "The graph host reported no error message.",
        }
    thread_status = {
        "success": "interrupted" if unfinished else "idle",
        "interrupted": "interrupted",
    }.get(status, "error")
    values, state = done.get("values"), done.get("state")
    run_end = RunEnd(run.token, run.thread, status, thread_status)
    run_end.is_last = run.temporary
    run_end.has_webhook = webhooks.WEBHOOK_MARKER in run.kwargs
    if error is not None:
        run_end.error = storable(dumps(error)).decode()
    if done.get("is_state_unknown"):
        run_end.state = STATE_UNKNOWN
    elif values is not None and state is not None:
        values_json = storable(bytes(values))
        run_end.values = values_json.decode()
        run_end.state = (b'{"values":' + values_json + b"," + storable(bytes(state))[1:]).decode()
        run_end.interrupts = storable(bytes(done.get("interrupts") or b"{}")).decode()
        run_end.size = 2 * len(values_json)
    failed = status in ("error", "timeout")
    return RunResult(
        run_end,
        error_event=dumps(error) if failed else None,
        response=_response(bytes(values or b"{}"), done.get("asks"), error if failed else None),
        closing_events=[(str(name), bytes(data)) for name, data in done.get("closing") or ()],
    )


def _response(values: bytes, interrupts: bytes | None, error: dict[str, Any] | None) -> bytes:
    """The response of `wait`: the values with `__interrupt__`, or `__error__` alone."""
    if error is not None:
        return dumps({"__error__": error})
    if not interrupts:
        return values
    field = b'"__interrupt__":' + bytes(interrupts)
    if not values.startswith(b"{"):
        return b"{" + field + b"}"
    return values[:-1] + (b"," if len(values) > 2 else b"") + field + b"}"


def add_state(result: RunResult, snapshot: bytes) -> None:
    """Complete a result of unknown state with the thread's state as read by a graph host."""
    state = loads(snapshot)
    if state["created_at"] is None:
        return
    run_end, values = result.run_end, dumps(state["values"])
    interrupts = {task["id"]: task["interrupts"] for task in state["tasks"] if task["interrupts"]}
    run_end.values = storable(values).decode()
    run_end.state = storable(snapshot).decode()
    run_end.interrupts = storable(dumps(interrupts)).decode()
    run_end.size = 2 * len(snapshot)
    if result.error_event is None:
        result.response = values
