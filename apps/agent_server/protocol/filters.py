"""Which events of a thread a reader wants."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from apps.agent_server.protocol.events import ProtocolEvent
from apps.agent_server.schemas.commands import CommandParameters

CHANNELS = (
    "values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"
)  # fmt: skip
Channel = Annotated[str, StringConstraints(pattern=rf"^(?:{'|'.join(CHANNELS)}|custom:.+)$")]


class EventFilter(CommandParameters):
    """Channels, and how deep below which namespaces."""

    channels: list[Channel] = Field(min_length=1)
    namespaces: list[list[str]] | None = None
    depth: int | None = Field(None, ge=0)
    since: int | None = Field(None, ge=0)

    def model_post_init(self, _: Any) -> None:
        object.__setattr__(self, "_channels", frozenset(self.channels))

    def matches(self, event: ProtocolEvent) -> bool:
        channels: frozenset[str] = self._channels  # type: ignore[attr-defined]
        channel = event.channel
        if channel not in channels and not (channel[:7] == "custom:" and "custom" in channels):
            return False
        if not self.namespaces:
            return True
        return any(self._reaches(prefix, event.namespace) for prefix in self.namespaces)

    def _reaches(self, prefix: list[str], namespace: list[str]) -> bool:
        below = len(namespace) - len(prefix)
        if below < 0 or (self.depth is not None and below > self.depth):
            return False
        return all(map(_matches_segment, prefix, namespace))


def _matches_segment(wanted: str, segment: str) -> bool:
    """A segment is `node:task`; who does not know the task may name the node."""
    return wanted == segment or (":" not in wanted and segment.partition(":")[0] == wanted)
