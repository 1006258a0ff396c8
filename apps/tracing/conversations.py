"""What is new in each turn of a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from apps.tracing.messages import Message


def fresh(messages: Sequence[Message], known: Sequence[Message]) -> Sequence[Message]:
    """The messages without those at their beginning that are known; of some, at least the last.

    A chat sends its whole history with each turn.
    """
    seen = {(m.role, m.parts) for m in known}
    at = 0
    while at < len(messages) and (messages[at].role, messages[at].parts) in seen:
        at += 1
    return messages[at:] if at < len(messages) else messages[-1:]
