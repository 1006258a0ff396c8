"""What the end of an attempt means: for the run, for its thread, and for those who listen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.agent_runtime.db.write_batch import STATE_UNKNOWN, Claimed, Ending
from apps.agent_server.run_state_sql import CANCELLED
from apps.agent_server.webhooks import statements as webhooks
from apps.core.json import dumps, loads, storable


@dataclass(slots=True)
class Outcome:
    """How an attempt ended: for the database, for the stream, and for a caller who waits."""

    ending: Ending
    error_event: bytes | None
    result: bytes
    closing: Sequence[tuple[str, bytes]] = ()
    """The run's last events beside an error: what may be heard only after the commit."""


def ending(claimed: Claimed, told: dict[str, Any], *, timed_out: bool = False) -> Outcome:
    """What a host's `done` means for the run and its thread."""
    status, error = str(told.get("status")), told.get("error")
    unfinished = bool(told.get("unfinished"))
    if status == "cancelled" and timed_out:
        status, error = "timeout", {"error": "TimeoutError", "message": "The run took too long."}
    elif status == "cancelled":
        status, error = "interrupted", loads(CANCELLED)
    elif status != "success":
        status = "error"
        error = error or {"error": "RuntimeError", "message": "The graph host did not say why."}
    thread_status = {
        "success": "interrupted" if unfinished else "idle",
        "interrupted": "interrupted",
    }.get(status, "error")
    values, state = told.get("values"), told.get("state")
    written = Ending(claimed.token, claimed.thread, status, thread_status)
    written.is_last = claimed.temporary
    written.has_webhook = webhooks.WEBHOOK_MARKER in claimed.kwargs
    if error is not None:
        written.error = storable(dumps(error)).decode()
    if told.get("is_unknown"):
        written.state = STATE_UNKNOWN
    elif values is not None and state is not None:
        kept = storable(bytes(values))
        written.values = kept.decode()
        written.state = (b'{"values":' + kept + b"," + storable(bytes(state))[1:]).decode()
        written.interrupts = storable(bytes(told.get("interrupts") or b"{}")).decode()
        written.size = 2 * len(kept)
    failed = status in ("error", "timeout")
    return Outcome(
        written,
        error_event=dumps(error) if failed else None,
        result=_result(bytes(values or b"{}"), told.get("asks"), error if failed else None),
        closing=[(str(name), bytes(data)) for name, data in told.get("closing") or ()],
    )


def _result(values: bytes, asks: bytes | None, error: dict[str, Any] | None) -> bytes:
    """What `wait` answers: the values with the questions among them, or the error alone."""
    if error is not None:
        return dumps({"__error__": error})
    if not asks:
        return values
    asked = b'"__interrupt__":' + bytes(asks)
    if not values.startswith(b"{"):
        return b"{" + asked + b"}"
    return values[:-1] + (b"," if len(values) > 2 else b"") + asked + b"}"


def see(outcome: Outcome, snapshot: bytes) -> None:
    """Put the thread's state, as its graph host tells it, into an outcome that lacked it."""
    state = loads(snapshot)
    if state["created_at"] is None:
        return
    ending, values = outcome.ending, dumps(state["values"])
    questions = {task["id"]: task["interrupts"] for task in state["tasks"] if task["interrupts"]}
    ending.values = storable(values).decode()
    ending.state = storable(snapshot).decode()
    ending.interrupts = storable(dumps(questions)).decode()
    ending.size = 2 * len(snapshot)
    if outcome.error_event is None:
        outcome.result = values
