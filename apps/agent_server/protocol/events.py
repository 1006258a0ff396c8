"""Events of a thread's runs, as the protocol's channels show them.

A run that was started by the protocol speaks by channels itself (apps.graph_host.channels); of any
other, what has a counterpart is shown. Each event of a stream makes one event here or none, without
memory: so its id and its number are the same for every reader and at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from apps.agent_server.services.thread_streams import FollowedRun
from apps.agent_server.streaming.streams import END, Event, EventId
from apps.core.json import dumps, loads

CHANNEL_PREFIX = b"~"
_STREAM_MODES = frozenset({"values", "updates", "custom", "tasks"})
_EVENT = b'{"type":"event","event_id":"%b.%d","seq":%d,"method":"%b","params":%b,"data":%b}}'
_FAILED_STATUSES = frozenset({"error", "timeout"})


class ProtocolEvent(NamedTuple):
    """One event on a channel."""

    at: EventId
    run: FollowedRun
    method: str
    qualifier: str
    """The node of a message, or the name of a custom event."""
    namespace: list[str]
    data: bytes

    @property
    def seq(self) -> int:
        return self.at.position

    @property
    def channel(self) -> str:
        if self.method == "input.requested":
            return "input"
        if self.method == "custom" and self.qualifier:
            return f"custom:{self.qualifier}"
        return self.method

    def as_json(self) -> bytes:
        params = {"namespace": self.namespace, "timestamp": self.at.ms}
        if self.method == "messages" and self.qualifier:
            params["node"] = self.qualifier
        return _EVENT % (
            str(self.at).encode(),
            self.run.run_id.int % 1_000_000,
            self.seq,
            self.method.encode(),
            dumps(params)[:-1],
            self.data,
        )


def to_protocol_event(run: FollowedRun, event: Event) -> ProtocolEvent | None:
    """What the event is to readers by channel; None when it is nothing to them."""
    if event.name.startswith(CHANNEL_PREFIX):
        method, qualifier, namespace = parse_name(event.name)
        return ProtocolEvent(event.id, run, method, qualifier, namespace, event.data)
    if event.name == END:
        return _lifecycle(run, event, _end_lifecycle(event))
    if event.name == b"metadata":
        return _lifecycle(run, event, {"event": "running"})
    if event.name == b"error":
        error = loads(event.data)
        said = f"{error.get('error')}: {error.get('message')}"
        return _lifecycle(run, event, {"event": "failed", "error": said})
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
    """An event by channel as readers by stream mode know it; None when they know none like it."""
    if not event.name.startswith(CHANNEL_PREFIX):
        return event
    method, _, namespace = parse_name(event.name)
    if method not in _STREAM_MODES:
        return None
    return event._replace(name="|".join((method, *namespace)).encode())


def _lifecycle(run: FollowedRun, event: Event, data: dict[str, str] | None) -> ProtocolEvent | None:
    if data is None:
        return None
    told = dumps({**data, "graph_name": run.graph_id})
    return ProtocolEvent(event.id, run, "lifecycle", "", [], told)


def _end_lifecycle(event: Event) -> dict[str, str] | None:
    """None for a failed run: its error said so already."""
    status = loads(event.data).get("status")
    if status in _FAILED_STATUSES:
        return None
    if status == "success" and event.left == b"interrupted":
        return {"event": "interrupted"}
    # A run that was stopped is over as well: nobody waits for more of it.
    return {"event": "completed"}
