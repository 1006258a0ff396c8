"""Parses streams of server-sent events, as providers send them."""

from __future__ import annotations

from collections.abc import Iterator

MAX_EVENT_BYTES = 2_097_152


class EventTooLarge(Exception):
    """An event of the stream has more than `MAX_EVENT_BYTES`."""


class EventParser:
    """Yields the data of complete events; comments, names and ids are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of events that end in this piece. Raises `EventTooLarge`."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise EventTooLarge
        for raw_line in lines:
            line = raw_line.removesuffix(b"\r")
            if not line:
                if self._data:
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
