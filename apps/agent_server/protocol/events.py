"""Channel events of the thread protocol, filters on them, and the agent tree of a run.

A run that the protocol started already publishes channel events (apps.graph_host.channels). Events
of other runs are converted if they have a counterpart. The conversion is stateless and yields at
most one event per stream event, so ids and sequence numbers are the same for every reader.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field, StringConstraints

from apps.agent_server.schemas.commands import CommandParameters
from apps.agent_server.services.stream_history import FollowedRun
from apps.agent_server.streaming.streams import END, Event, EventId
from apps.core.json import dumps, loads

CHANNEL_PREFIX = b"~"
_STREAM_MODES = frozenset({"values", "updates", "custom", "tasks"})
_EVENT = b'{"type":"event","event_id":"%b.%d","seq":%d,"method":"%b","params":%b,"data":%b}}'
_FAILED_STATUSES = frozenset({"error", "timeout"})


class ProtocolEvent(NamedTuple):
    """One event on a channel."""

    event_id: EventId
    run: FollowedRun
    method: str
    qualifier: str
    """The node of a message, or the name of a custom event."""
    namespace: list[str]
    data: bytes

    @property
    def seq(self) -> int:
        return self.event_id.position

    @property
    def channel(self) -> str:
        if self.method == "input.requested":
            return "input"
        if self.method == "custom" and self.qualifier:
            return f"custom:{self.qualifier}"
        return self.method

    def as_json(self) -> bytes:
        params = {"namespace": self.namespace, "timestamp": self.event_id.ms}
        if self.method == "messages" and self.qualifier:
            params["node"] = self.qualifier
        return _EVENT % (
            str(self.event_id).encode(),
            self.run.run_id.int % 1_000_000,
            self.seq,
            self.method.encode(),
            dumps(params)[:-1],
            self.data,
        )


def to_protocol_event(run: FollowedRun, event: Event) -> ProtocolEvent | None:
    """Convert a stream event to a channel event; None if it has no counterpart."""
    if event.name.startswith(CHANNEL_PREFIX):
        method, qualifier, namespace = parse_name(event.name)
        return ProtocolEvent(event.id, run, method, qualifier, namespace, event.data)
    if event.name == END:
        return _lifecycle(run, event, _end_lifecycle(event))
    if event.name == b"metadata":
        return _lifecycle(run, event, {"event": "running"})
    if event.name == b"error":
        error = loads(event.data)
        message = f"{error.get('error')}: {error.get('message')}"
        return _lifecycle(run, event, {"event": "failed", "error": message})
    method, _, rest = event.name.decode().partition("|")
    if method not in _STREAM_MODES:
        return None
    return ProtocolEvent(event.id, run, method, "", rest.split("|") if rest else [], event.data)


def parse_name(name: bytes) -> tuple[str, str, list[str]]:
    """The method, the qualifier and the namespace in the name of an event."""
    first, *namespace = name[1:].decode().split("|")
    method, _, qualifier = first.partition(":")
    return method, qualifier, namespace


def to_stream_mode(event: Event) -> Event | None:
    """Convert a channel event to a stream-mode event; None if it has no counterpart."""
    if not event.name.startswith(CHANNEL_PREFIX):
        return event
    method, _, namespace = parse_name(event.name)
    if method not in _STREAM_MODES:
        return None
    return event._replace(name="|".join((method, *namespace)).encode())


def _lifecycle(run: FollowedRun, event: Event, data: dict[str, str] | None) -> ProtocolEvent | None:
    if data is None:
        return None
    payload = dumps({**data, "graph_name": run.graph_id})
    return ProtocolEvent(event.id, run, "lifecycle", "", [], payload)


def _end_lifecycle(event: Event) -> dict[str, str] | None:
    """None for a failed run, whose `error` event precedes the end."""
    status = loads(event.data).get("status")
    if status in _FAILED_STATUSES:
        return None
    if status == "success" and event.thread_status == b"interrupted":
        return {"event": "interrupted"}
    # A cancelled run has completed as well.
    return {"event": "completed"}


CHANNELS = (
    "values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"
)  # fmt: skip
Channel = Annotated[str, StringConstraints(pattern=rf"^(?:{'|'.join(CHANNELS)}|custom:.+)$")]


class EventFilter(CommandParameters):
    """The channels and namespaces that a reader subscribed to."""

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


def _matches_segment(pattern: str, segment: str) -> bool:
    """Compare segments `node:task`; a filter may omit the task."""
    return pattern == segment or (":" not in pattern and segment.partition(":")[0] == pattern)


class AgentTree:
    """The agents of the latest run and their status, from its lifecycle events."""

    def __init__(self) -> None:
        self._root: dict[str, Any] | None = None
        self._run: object = None

    def update(self, event: ProtocolEvent) -> None:
        if event.method != "lifecycle":
            return
        if event.run.run_id != self._run:
            self._run, self._root = event.run.run_id, _node([], event.run.graph_id)
        node = self._root
        for end in range(1, len(event.namespace) + 1):
            node = _child(node or {}, event.namespace[:end])
        if node is not None:
            data = loads(event.data)
            node["status"] = data["event"]
            node["graph_name"] = data.get("graph_name") or node["graph_name"]

    def as_json(self) -> dict[str, Any] | None:
        """The root agent; None before the first event."""
        return self._root


def _child(parent: dict[str, Any], namespace: list[str]) -> dict[str, Any]:
    children: list[dict[str, Any]] = parent.setdefault("children", [])
    for child in children:
        if child["namespace"] == namespace:
            return child
    children.append(_node(namespace, namespace[-1].partition(":")[0]))
    return children[-1]


def _node(namespace: list[str], name: str) -> dict[str, Any]:
    return {"namespace": namespace, "status": "started", "graph_name": name}
