"""What travels between a worker and a graph host: frames over one inherited socket.

A frame is four bytes of length, then one msgpack array `[kind, ...]`. Both ends use this module.
docs/adr/0004-graph-host-protocol.md lists the kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

PROTOCOL = 1
MAX_FRAME = 64 * 1024 * 1024
HIGH_WATER = 1024 * 1024
"""Bytes waiting to be sent above which `drain` waits for the other end to read."""

_READ_SIZE = 256 * 1024
_LENGTH = struct.Struct(">I")

Frame = list[Any]


class FrameTooLarge(ValueError):
    """A frame above the limit; nothing of it was sent."""


class LinkClosed(ConnectionError):
    """The other end is gone."""


def encode(frame: Sequence[Any]) -> bytes:
    """The bytes of a frame; `FrameTooLarge` above the limit."""
    body: bytes = msgpack.packb(frame, use_bin_type=True, default=_narrow)
    if len(body) > MAX_FRAME:
        raise FrameTooLarge(
            f"A message of {len(body) / 2**20:.0f} MB is over the limit of "
            f"{MAX_FRAME / 2**20:.0f} MB."
        )
    return _LENGTH.pack(len(body)) + body


def _narrow(value: Any) -> float:
    """A number in place of an integer beyond 64 bits: jsonb makes one of 1e20."""
    if isinstance(value, int):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no place in a frame.")


class Decoder:
    """Turns received bytes into frames; keeps the incomplete rest."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete; `ValueError` for bytes that are none."""
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        try:
            while end - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > MAX_FRAME:
                    raise FrameTooLarge(f"The other end announced a message of {length} bytes.")
                if end - start < _LENGTH.size + length:
                    break
                body = bytes(
                    memoryview(buffer)[start + _LENGTH.size : start + _LENGTH.size + length]
                )
                start += _LENGTH.size + length
                frame = msgpack.unpackb(body, raw=False, strict_map_key=False)
                if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
                    raise ValueError("The other end sent a message that is not a frame.")
                yield frame
        finally:
            del buffer[:start]


class Link:
    """One end of the socket on an asyncio loop.

    Frames sent in one turn of the loop leave together. It works on the socket itself, not through a
    transport, so that code that blocks the loop can still make a round trip (`round_trip`).
    """

    def __init__(
        self,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_close: Callable[[BaseException | None], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_close = on_close
        self._decoder = Decoder()
        self._parts: list[bytes] = []
        self._rest = b""
        self._waiting = 0
        self._scheduled = False
        self._writing = False
        self._reading = True
        self._drained: deque[asyncio.Future[None]] = deque()
        self.closed = False
        self._loop.add_reader(self._fd, self._read)

    # Sending

    def send(self, frame: Sequence[Any]) -> None:
        """Queue a frame; it leaves at the end of this turn of the loop. Silent after the end."""
        self.send_encoded(encode(frame))

    def send_encoded(self, data: bytes) -> None:
        """Queue the bytes of a frame that `encode` made."""
        if self.closed:
            return
        self._parts.append(data)
        self._waiting += len(data)
        if not self._scheduled and not self._writing:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    def is_full(self) -> bool:
        """Whether the other end reads slower than this one writes."""
        return self._waiting > HIGH_WATER

    async def drain(self) -> None:
        """Return when the other end has read enough; `LinkClosed` when it never will."""
        if self.closed:
            raise LinkClosed
        if not self.is_full:
            return
        waiter = self._loop.create_future()
        self._drained.append(waiter)
        await waiter

    def _flush(self) -> None:
        self._scheduled = False
        if self.closed:
            return
        data = b"".join((self._rest, *self._parts)) if self._rest else b"".join(self._parts)
        self._parts.clear()
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(error)
            return
        self._rest = data[sent:]
        self._waiting = len(self._rest)
        if bool(self._rest) != self._writing:
            self._writing = bool(self._rest)
            if self._writing:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        if not self.is_full:
            self._release()

    def _release(self) -> None:
        while self._drained:
            waiter = self._drained.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Receiving

    def pause(self) -> None:
        """Stop reading, so that the other end feels that this one is behind."""
        if self._reading and not self.closed:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again after `pause`."""
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error)
            return
        if not data:
            self.close(None)
            return
        try:
            for frame in self._decoder.feed(data):
                self._on_frame(frame)
                if self.closed:
                    return
        except (ValueError, msgpack.UnpackException) as error:
            self.close(error)

    def round_trip(self, frame: Sequence[Any], is_answer: Callable[[Frame], bool]) -> Frame:
        """Send a frame and block this thread, the loop's own, until its answer is read.

        For synchronous code that runs on the loop. Frames that arrive meanwhile are handled after
        it, in their order.
        """
        self.send(frame)
        early: list[Frame] = []
        self._sock.setblocking(True)
        try:
            data = b"".join((self._rest, *self._parts))
            self._parts.clear()
            self._rest, self._waiting = b"", 0
            self._sock.sendall(data)
            while True:
                received = self._sock.recv(_READ_SIZE)
                if not received:
                    raise LinkClosed
                answer = None
                for arrived in self._decoder.feed(received):
                    if answer is None and is_answer(arrived):
                        answer = arrived
                    else:
                        early.append(arrived)
                if answer is not None:
                    return answer
        finally:
            self._sock.setblocking(False)
            for arrived in early:
                self._loop.call_soon(self._on_frame, arrived)

    # The end

    def close(self, reason: BaseException | None = None) -> None:
        """Close the socket and say so once; waiting frames are dropped."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
        self._sock.close()
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_exception(LinkClosed())
        self._drained.clear()
        self._on_close(reason)
