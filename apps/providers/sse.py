"""Parses streams of server-sent events, as providers send them."""

from __future__ import annotations

from collections.abc import Iterator

MAX_EVENT_BYTES = 2_097_152
MAX_EVENTS = 200_000
"""Of one response."""


class EventTooLarge(Exception):
    """An event has more than `MAX_EVENT_BYTES`, or the stream more than `MAX_EVENTS`."""


class EventParser:
    """Yields the data of complete events; comments, names and ids are skipped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = self._count = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of events that end in this piece. Raises `EventTooLarge`."""
        self._rest += piece
        lines: list[bytearray] = []
        # A long line in short pieces is not split again and again.
        if b"\n" in piece:
            *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise EventTooLarge
        for raw_line in lines:
            line = bytes(raw_line.removesuffix(b"\r"))
            if not line:
                if self._data:
                    self._count += 1
                    if self._count > MAX_EVENTS:
                        raise EventTooLarge
                    yield b"\n".join(self._data)
                self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
                if self._size > MAX_EVENT_BYTES:
                    raise EventTooLarge

    def finish(self) -> Iterator[bytes]:
        """Yield the data of an event that the end of the stream completes."""
        yield from self.feed(b"\n\n")
