"""Converts commands of the API: `resume`, `update` and `goto`."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, Send


def to_command(fields: dict[str, Any]) -> Command[Any] | None:
    """Parse a command; None for an empty one, which continues the run."""
    goto = fields.get("goto")
    update = fields.get("update")
    if isinstance(update, list):
        update = [tuple(pair) for pair in update]
    if not goto and not update and fields.get("resume") is None:
        return None
    targets = goto if isinstance(goto, list) else [goto] if goto else []
    sends = [_target(target) for target in targets]
    return Command(
        update=update,
        resume=fields.get("resume"),
        goto=sends[0] if len(sends) == 1 else sends,
    )


def _target(target: Any) -> Any:
    return Send(target["node"], target.get("input")) if isinstance(target, dict) else target
