"""Thread states in the format of the Agent Server API."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import PregelTask, StateSnapshot

from . import encoding


def snapshot(state: StateSnapshot, thread_id: str) -> dict[str, Any]:
    """Return the JSON of a thread state with its values."""
    return {"values": state.values, **without_values(state, thread_id)}


def without_values(state: StateSnapshot, thread_id: str) -> dict[str, Any]:
    """Return the JSON of a thread state without its values, which may be large."""
    checkpoint = _reference(state.config)
    parent = _reference(state.parent_config)
    return {
        "next": list(state.next),
        "tasks": [_task(task, thread_id) for task in state.tasks],
        "metadata": {**state.metadata, "thread_id": thread_id} if state.metadata else None,
        "created_at": state.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [encoding.interrupt_of_state(i) for i in state.interrupts],
        "checkpoint_id": checkpoint["checkpoint_id"] if checkpoint else None,
        "parent_checkpoint_id": parent["checkpoint_id"] if parent else None,
    }


def thread_row(state: StateSnapshot, thread_id: str) -> dict[str, Any]:
    """Return the columns of the thread's row for this state, as JSON."""
    return {
        "values": encoding.dumps(state.values),
        "state": encoding.dumps(without_values(state, thread_id)),
        "interrupts": encoding.dumps(interrupts_by_task(state)),
        "unfinished": bool(state.next),
    }


def interrupts_by_task(state: StateSnapshot) -> dict[str, list[dict[str, Any]]]:
    """Return the interrupts of a state by task id."""
    return {
        task.id: [encoding.interrupt_of_state(i) for i in task.interrupts]
        for task in state.tasks
        if task.interrupts
    }


def _task(task: PregelTask, thread_id: str) -> dict[str, Any]:
    nested, checkpoint = None, None
    if isinstance(task.state, StateSnapshot):
        nested = snapshot(task.state, thread_id)
    elif task.state:
        checkpoint = {
            name: value
            for name, value in task.state["configurable"].items()
            if name in ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
        }
    error = task.error
    return {
        "id": task.id,
        "name": task.name,
        "path": list(task.path),
        "error": None if error is None else _error_text(error),
        "interrupts": [encoding.interrupt_of_state(i) for i in task.interrupts],
        "checkpoint": checkpoint,
        "state": nested,
        "result": task.result,
    }


def _error_text(error: object) -> str:
    # An error read from a checkpoint is text; an error of this process is an exception.
    return error if isinstance(error, str) else repr(error)


def _reference(config: RunnableConfig | None) -> dict[str, Any] | None:
    configurable = (config or {}).get("configurable") or {}
    if not configurable.get("checkpoint_id"):
        return None
    reference = {
        "thread_id": configurable.get("thread_id"),
        "checkpoint_ns": configurable.get("checkpoint_ns", ""),
        "checkpoint_id": configurable["checkpoint_id"],
    }
    if configurable.get("checkpoint_map"):
        reference["checkpoint_map"] = configurable["checkpoint_map"]
    return reference
