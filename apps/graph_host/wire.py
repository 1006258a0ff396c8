"""The protocol between worker and graph host: frames over an inherited socket pair.

A frame is four bytes of length, then one msgpack array `[kind, ...]`. Both ends use this module.
docs/adr/0004-graph-host-protocol.md lists the kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

from .frame_limits import UNCHECKED_BYTES, check_structure

PROTOCOL = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024
HIGH_WATER_BYTES = 1024 * 1024
"""Amount of unsent bytes above which `drain` waits."""

_READ_BYTES = 256 * 1024
_REPORT_SECONDS = 0.002
"""A report for each read would cost more than reading a small frame."""
_REPORT_BYTES = 64 * 1024
"""Reported at once: a flood of large frames would go on for as long as the report waits."""
_LENGTH = struct.Struct(">I")

Frame = list[Any]


class FrameTooLarge(ValueError):
    """The frame exceeds the limit and was not sent."""


class LinkClosed(ConnectionError):
    """The peer closed the socket."""


MALFORMED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""The errors that a frame's handler raises for values of wrong types or ranges."""


def as_bytes(value: object) -> bytes:
    """Return the value of a frame that must be bytes. Raises `TypeError`.

    `bytes(value)` does not check the type: for a number it allocates that many bytes.
    """
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, not {type(value).__name__}")
    return value


def encode(frame: Sequence[Any]) -> bytes:
    """Encode a frame. Raises `FrameTooLarge`."""
    body: bytes = msgpack.packb(frame, use_bin_type=True, default=_encode_big_int)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLarge(
            f"A message of {len(body) / 2**20:.0f} MB is over the limit of "
            f"{MAX_FRAME_BYTES / 2**20:.0f} MB."
        )
    return _LENGTH.pack(len(body)) + body


def _encode_big_int(value: Any) -> float:
    """Convert integers beyond 64 bits to float: jsonb returns them for 1e20, for example."""
    if isinstance(value, int):
        return float(value)
    raise TypeError(f"A frame cannot contain {type(value).__name__}.")


class Decoder:
    """Decodes received bytes to frames and buffers an incomplete frame."""

    def __init__(self, *, is_peer_trusted: bool = False) -> None:
        """The structure of a trusted peer's frames is not limited."""
        self._buffer = bytearray()
        self._is_peer_trusted = is_peer_trusted

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete. Raises `ValueError` for malformed data."""
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        try:
            while end - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > MAX_FRAME_BYTES:
                    raise FrameTooLarge(f"The peer announced a message of {length} bytes.")
                if end - start < _LENGTH.size + length:
                    break
                body = bytes(
                    memoryview(buffer)[start + _LENGTH.size : start + _LENGTH.size + length]
                )
                start += _LENGTH.size + length
                if length > UNCHECKED_BYTES and not self._is_peer_trusted:
                    check_structure(body)
                frame = msgpack.unpackb(body, raw=False, strict_map_key=False)
                if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
                    raise ValueError("The peer sent a message that is not a frame.")
                yield frame
        finally:
            del buffer[:start]


class Link:
    """One end of the socket on an asyncio loop.

    Frames of the same loop iteration are sent together. It uses the socket directly instead of a
    transport, so that code that blocks the loop can still make a request (`round_trip`).
    """

    def __init__(
        self,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_close: Callable[[BaseException | None], None],
        max_unsent_bytes: int | None = None,
        *,
        on_handled: Callable[[int, float], None] | None = None,
        is_peer_trusted: bool = False,
    ) -> None:
        """Above `max_unsent_bytes`, the link is closed: the peer does not read.

        An untrusted peer's frame that exceeds `frame_limits` closes it too. `on_handled` is called
        after reads, at most every `_REPORT_SECONDS` or `_REPORT_BYTES`, with the bytes since its
        last call and the seconds that their frames took.
        """
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_close = on_close
        self._on_handled = on_handled
        self._handled_bytes = 0
        self._handled_seconds = 0.0
        self._reported_at = -math.inf
        self._decoder = Decoder(is_peer_trusted=is_peer_trusted)
        self._parts: list[bytes] = []
        self._partial = b""
        self._unsent_bytes = 0
        self._max_unsent_bytes = max_unsent_bytes
        self._scheduled = False
        self._writing = False
        self._reading = True
        self._drain_waiters: deque[asyncio.Future[None]] = deque()
        self.closed = False
        self._loop.add_reader(self._fd, self._read)

    # Sending

    def send(self, frame: Sequence[Any]) -> None:
        """Send a frame at the end of this loop iteration; ignored after close."""
        self.send_encoded(encode(frame))

    def send_encoded(self, data: bytes) -> None:
        """Send an encoded frame."""
        if self.closed:
            return
        self._parts.append(data)
        self._unsent_bytes += len(data)
        if self._max_unsent_bytes is not None and self._unsent_bytes > self._max_unsent_bytes:
            self.close(BufferError("The peer does not read."))
            return
        if not self._scheduled and not self._writing:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    @property
    def is_full(self) -> bool:
        """Whether the peer reads slower than this end writes."""
        return self._unsent_bytes > HIGH_WATER_BYTES

    async def drain(self) -> None:
        """Wait until the peer has read enough. Raises `LinkClosed`."""
        if self.closed:
            raise LinkClosed
        if not self.is_full:
            return
        waiter = self._loop.create_future()
        self._drain_waiters.append(waiter)
        await waiter

    def _flush(self) -> None:
        self._scheduled = False
        if self.closed:
            return
        data = b"".join((self._partial, *self._parts)) if self._partial else b"".join(self._parts)
        self._parts.clear()
        try:
            sent_bytes = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent_bytes = 0
        except OSError as error:
            self.close(error)
            return
        self._partial = data[sent_bytes:]
        self._unsent_bytes = len(self._partial)
        if bool(self._partial) != self._writing:
            self._writing = bool(self._partial)
            if self._writing:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        if not self.is_full:
            self._release()

    def flush_blocking(self) -> None:
        """Block the loop's thread until the peer has read all but what the socket buffers."""
        if self.closed:
            return
        self._sock.setblocking(True)
        try:
            self._send_all()
        except OSError as error:
            self.close(error)
            return
        self._sock.setblocking(False)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._release()

    def _send_all(self) -> None:
        """Send the unsent frames on the socket, which must be blocking."""
        data = b"".join((self._partial, *self._parts))
        self._parts.clear()
        self._partial, self._unsent_bytes = b"", 0
        self._sock.sendall(data)

    def _release(self) -> None:
        while self._drain_waiters:
            waiter = self._drain_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Receiving

    def pause(self) -> None:
        """Stop reading: backpressure to the peer."""
        if self._reading and not self.closed:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again after `pause`."""
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._read)
            # Frames that had arrived before the pause.
            self._loop.call_soon(self._handle_measured, b"")

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error)
            return
        if not data:
            self.close(None)
            return
        self._handle_measured(data)

    def _handle_measured(self, data: bytes) -> None:
        if self._on_handled is None:
            self._handle(data)
            return
        started_at = time.perf_counter()
        self._handle(data)
        ended_at = time.perf_counter()
        self._handled_bytes += len(data)
        self._handled_seconds += ended_at - started_at
        is_recent = ended_at - self._reported_at < _REPORT_SECONDS
        if is_recent and self._handled_bytes < _REPORT_BYTES:
            return
        self._reported_at = ended_at
        size, seconds = self._handled_bytes, self._handled_seconds
        self._handled_bytes, self._handled_seconds = 0, 0.0
        self._on_handled(size, seconds)

    def _takes_frames(self) -> bool:
        return self._reading and not self.closed

    def _handle(self, data: bytes) -> None:
        if not self._takes_frames():
            return
        try:
            for frame in self._decoder.feed(data):
                self._on_frame(frame)
                if not self._takes_frames():
                    return
        except (ValueError, msgpack.UnpackException) as error:
            self.close(error)

    def round_trip(self, frame: Sequence[Any], is_answer: Callable[[Frame], bool]) -> Frame:
        """Send a frame and block the loop's thread until its answer arrives.

        For synchronous code on the loop. Other frames that arrive meanwhile are handled later, in
        order.
        """
        self.send(frame)
        early: list[Frame] = []
        self._sock.setblocking(True)
        try:
            self._send_all()
            while True:
                received = self._sock.recv(_READ_BYTES)
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

    # Close

    def close(self, reason: BaseException | None = None) -> None:
        """Close the socket and call `on_close` once; unsent frames are dropped."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
        self._sock.close()
        for waiter in self._drain_waiters:
            if not waiter.done():
                waiter.set_exception(LinkClosed())
        self._drain_waiters.clear()
        self._on_close(reason)
