"""The time that a tenant's server has for a request, whatever it sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Self

from apps.exports.errors import WriteFailed


class Deadline:
    """Ends the connections that the current thread opens in the block after some seconds.

    Timeouts of sockets restart with each byte, so a hostile server could hold the thread.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.has_expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def watch(self, connection: socket.socket) -> None:
        with self._lock:
            # A duplicate stays valid when TLS takes the socket over.
            self._sockets.append(connection.dup())
        if self.has_expired:
            self._expire()

    def _expire(self) -> None:
        self.has_expired = True
        with self._lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):  # already closed by the server
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer = threading.Timer(self.seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()
        self._token = _deadline.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _deadline.reset(self._token)
        with self._lock:
            for connection in self._sockets:
                connection.close()


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current_deadline() -> Deadline | None:
    return _deadline.get()


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Run a block that writes to a server. Raises `WriteFailed` if it takes longer."""
    with Deadline(seconds) as deadline:
        try:
            yield
        except WriteFailed:
            if not deadline.has_expired:
                raise
        # A response that the deadline cut off may look complete.
        if deadline.has_expired:
            raise WriteFailed(f"The server did not respond in {seconds:.0f} s.")
