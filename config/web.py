"""The web process and the playground's: uvicorn, for long streams and with a short shutdown."""

import argparse
import asyncio
import gc
import mmap
import os
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from config.env import env

SHUTDOWN_TIMEOUT_SECONDS = 5
_GC_THRESHOLDS = 20_000, 20, 50
"""Thresholds of the garbage collector: a batch of runs allocates thousands of objects that end with
its request."""
_MAX_PROCESSES = 64
_MAX_YIELDS = 5
_YIELD_SECONDS = 0.002


class WriteDeadline:
    """Mixin of a protocol: aborts a connection whose client does not read its response.

    While the client is behind, it must read `MIN_BYTES` in `SECONDS`. Otherwise its response, its
    files and its connection would be held for as long as it likes.
    """

    SECONDS = 30.0
    MIN_BYTES = 65_536
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _deadline: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._set_deadline()

    def resume_writing(self) -> None:
        self._clear_deadline()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)  # type: ignore[misc]

    def _set_deadline(self) -> None:
        self._clear_deadline()
        unsent = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(self.SECONDS, self._check_progress, unsent)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _check_progress(self, unsent_before: int) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent_before - unsent < self.MIN_BYTES:
            self.transport.abort()
        else:
            self._set_deadline()


class HttpProtocol(WriteDeadline, HttpToolsProtocol):
    """HTTP with a write deadline."""


class WebSocketProtocol(WriteDeadline, WebSocketsSansIOProtocol):
    """WebSockets with a write deadline."""


class ConnectionCounts:
    """The number of connections of each web process, in shared memory."""

    def __init__(self, file: Path, index: int, processes: int) -> None:
        # The count of a killed process remains until its successor with the same index starts.
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _MAX_PROCESSES * 4)
            self._counts_by_index = memoryview(mmap.mmap(descriptor, _MAX_PROCESSES * 4)).cast("i")
        finally:
            os.close(descriptor)
        self._index, self._processes = index, processes
        self.set(0)

    def set(self, count: int) -> None:
        self._counts_by_index[self._index] = count

    def is_least(self) -> bool:
        """Return whether no other process has fewer connections."""
        return self._counts_by_index[self._index] <= min(self._counts_by_index[: self._processes])


class Server(uvicorn.Server):
    """A server that excludes start-up objects from garbage collection."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)


class BalancedServer(Server):
    """One of several web processes on one socket.

    The process with the fewest connections accepts next. Otherwise the process that wakes first
    would accept every connection of a burst, and clients keep connections for hours.
    """

    def __init__(self, config: uvicorn.Config, counts: ConnectionCounts) -> None:
        super().__init__(config)
        self._counts = counts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._publish_count()
        self._accepting = [
            asyncio.create_task(self._accept(listener)) for listener in sockets or []
        ]

    async def on_tick(self, counter: int) -> bool:
        self._publish_count()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            await _wait_readable(listener)
            await self._yield_to_others()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:  # another process accepted it
                continue
            except OSError:  # out of descriptors, or the client disconnected
                await asyncio.sleep(0.05)
                continue
            connection.setblocking(False)
            with suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, connection)
            self._publish_count()

    async def _yield_to_others(self) -> None:
        # Briefly: the process with fewer connections may be busy or dead.
        for _ in range(_MAX_YIELDS):
            if self._counts.is_least():
                return
            await asyncio.sleep(_YIELD_SECONDS)

    def _publish_count(self) -> None:
        self._counts.set(len(self.server_state.connections))

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


async def _wait_readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)


def main() -> None:
    """Serve on the socket inherited from the supervisor (`--fd`), or on HOST and PORT."""
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
    parser.add_argument("--index", type=int, default=0, help="index among WEB_PROCESSES, from 0")
    parser.add_argument(
        "--playground", action="store_true", help="serve the calls that web processes forward"
    )
    options = parser.parse_args()
    config = uvicorn.Config(
        "config.playground:application" if options.playground else "config.asgi:application",
        host=env().host,
        port=env().port,
        loop="uvloop",
        http=HttpProtocol,
        ws=WebSocketProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        # An untrusted client could otherwise choose the address that it is counted under.
        proxy_headers=bool(env().proxies),
        forwarded_allow_ips=env().proxies,
        # Streams have no natural end; clients resume with Last-Event-ID.
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS,
        timeout_keep_alive=75,
    )
    listeners = [socket.socket(fileno=options.fd)] if options.fd is not None else None
    server = Server(config)
    is_balanced = listeners is not None and not options.playground
    if is_balanced and (processes := env().web_processes) > 1:
        counts = ConnectionCounts(env().instance.run_dir / "connections", options.index, processes)
        server = BalancedServer(config, counts)
    server.run(sockets=listeners)


if __name__ == "__main__":
    main()
