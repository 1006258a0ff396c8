"""Server-sent events in the exact bytes that Agent Server clients expect."""

from __future__ import annotations

from collections.abc import Sequence

from apps.agent_server.protocol.events import CHANNEL_PREFIX, to_stream_mode
from apps.agent_server.schemas.runs import STREAM_MODES
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.core.errors import AppError, Invalid
from apps.core.json import dumps

HEARTBEAT = b": heartbeat\r\n\r\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
ERROR = b"error"
_UNFILTERED = frozenset({ERROR, END})


def encode_event(name: bytes, data: bytes, event_id: EventId | None = None) -> bytes:
    """Encode one event; the id, if any, follows the data."""
    if event_id is None:
        return b"event: %b\r\ndata: %b\r\n\r\n" % (name, data)
    return b"event: %b\r\ndata: %b\r\nid: %d-%d\r\n\r\n" % (name, data, *event_id)


def encode_error(name: str, message: str) -> bytes:
    return encode_event(ERROR, dumps({"error": name, "message": message}))


def encode_access_lost(error: AppError) -> bytes:
    """The last frame for a reader who has lost access."""
    return encode_error("HTTPException", f"{error.status}: {error.detail}")


class StreamModeFilter:
    """The stream modes that a reader requested; no modes means all events."""

    def __init__(self, modes: Sequence[str] = ()) -> None:
        self._modes = {mode.encode() for mode in modes}
        for mode in modes:
            if mode not in STREAM_MODES:
                supported = ", ".join(sorted(STREAM_MODES))
                raise Invalid(f"stream_mode: '{mode}' is not one of {supported}")

    def matches(self, name: bytes) -> bool:
        if not self._modes or name in _UNFILTERED:
            return True
        base, _, _ = name.partition(b"|")
        if base == b"messages":  # the event name of the mode `messages-tuple`
            return b"messages-tuple" in self._modes
        family, _, _ = base.partition(b"/")
        return family in self._modes


class ResumePosition:
    """The position of a `Last-Event-ID` header."""

    def __init__(self, header: str | None) -> None:
        self.is_requested = header is not None
        self.is_malformed = False
        self.after: EventId | None = None
        if header is None:
            return
        try:
            self.after = BEGINNING if header.strip() == "-1" else EventId.parse(header.strip())
        except ValueError:
            self.is_malformed = True


class FrameRenderer:
    """Renders events as the frames of one stream and detects its end.

    An error is a stream's last event, so no `end` follows it.
    """

    def __init__(self, *, with_ids: bool, mode_filter: StreamModeFilter | None = None) -> None:
        self.with_ids = with_ids
        self.mode_filter = mode_filter or StreamModeFilter()
        self.end: Event | None = None
        self.has_failed = False
        self.has_started = False

    def is_finished(self) -> bool:
        return self.end is not None

    def render(self, events: list[Event]) -> bytes:
        parts: list[bytes] = []
        for event in events:
            if event.name == END:
                self.end = event
                if self.has_failed:
                    break
            elif event.id != BEGINNING:
                self.has_started = True
            if event.name == ERROR:
                self.has_failed = True
            mode_event = to_stream_mode(event) if event.name[:1] == CHANNEL_PREFIX else event
            if mode_event is not None and self.mode_filter.matches(mode_event.name):
                event_id = event.id if self.with_ids and event.id != BEGINNING else None
                parts.append(encode_event(mode_event.name, mode_event.data, event_id))
            if self.end is not None:
                break
        return b"".join(parts)
