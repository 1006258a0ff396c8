"""Commands of the wire: what to resume with, what to change, where to go."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, Send


def to_command(given: dict[str, Any]) -> Command[Any] | None:
    """A command of the wire; None when it says nothing, which means to go on."""
    goto = given.get("goto")
    update = given.get("update")
    if isinstance(update, list):
        update = [tuple(pair) for pair in update]
    if not goto and not update and given.get("resume") is None:
        return None
    targets = goto if isinstance(goto, list) else [goto] if goto else []
    sends = [_target(target) for target in targets]
    return Command(
        update=update,
        resume=given.get("resume"),
        goto=sends[0] if len(sends) == 1 else sends,
    )


def _target(given: Any) -> Any:
    return Send(given["node"], given.get("input")) if isinstance(given, dict) else given
