"""Detection of the new messages of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from apps.tracing.messages import Message


def new_messages(messages: Sequence[Message], known: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without the known ones at the start, but at least the last one.

    Chat clients send the whole history with each turn.
    """
    seen = {(m.role, m.parts) for m in known}
    index = 0
    while index < len(messages) and (messages[index].role, messages[index].parts) in seen:
        index += 1
    return messages[index:] if index < len(messages) else messages[-1:]
