"""The web process: uvicorn, set up for long streams behind a short stop."""

import argparse
import asyncio
import gc
import mmap
import os
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn

from config.env import env

SHUTDOWN_TIMEOUT_SECONDS = 5
_COLLECT_AFTER = 20_000, 20, 50
"""Objects, and rounds: a request of a hundred runs makes thousands that all end with it."""
_MAX_PROCESSES = 64
_MAX_YIELDS = 5
_YIELD_SECONDS = 0.002


class ConnectionCounts:
    """How many connections each web process of the installation has, in memory that all share."""

    def __init__(self, file: Path, place: int, places: int) -> None:
        # A count that a killed process left stands until its successor, who has this place, begins.
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _MAX_PROCESSES * 4)
            self._all = memoryview(mmap.mmap(descriptor, _MAX_PROCESSES * 4)).cast("i")
        finally:
            os.close(descriptor)
        self._place, self._places = place, places
        self.tell(0)

    def tell(self, count: int) -> None:
        self._all[self._place] = count

    def is_least(self) -> bool:
        """Whether no other process has fewer."""
        return self._all[self._place] <= min(self._all[: self._places])


class Server(uvicorn.Server):
    """A server that does not look for garbage in what lasts as long as it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)


class BalancedServer(Server):
    """One of several web processes on one socket: who has fewer connections takes the next one.

    The one that wakes first would take all that come at once, and clients keep theirs for hours.
    """

    def __init__(self, config: uvicorn.Config, counts: ConnectionCounts) -> None:
        super().__init__(config)
        self._counts = counts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._tell()
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or []]

    async def on_tick(self, counter: int) -> bool:
        self._tell()
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
            await self._let_others_first()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:  # another process took it
                continue
            except OSError:  # no descriptor is left, or the client is gone already
                await asyncio.sleep(0.05)
                continue
            connection.setblocking(False)
            with suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, connection)
            self._tell()

    async def _let_others_first(self) -> None:
        # Not for long: the process that has fewer may be at work, or be gone.
        for _ in range(_MAX_YIELDS):
            if self._counts.is_least():
                return
            await asyncio.sleep(_YIELD_SECONDS)

    def _tell(self) -> None:
        self._counts.tell(len(self.server_state.connections))

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
    """Serve on the socket that the supervisor holds (`--fd`), or on HOST and PORT."""
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
    parser.add_argument("--place", type=int, default=0, help="which of WEB_PROCESSES, from 0")
    options = parser.parse_args()
    config = uvicorn.Config(
        "config.asgi:application",
        host=env().host,
        port=env().port,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        log_config=None,
        access_log=False,
        server_header=False,
        # Who is not a trusted proxy could otherwise choose the address that it is counted under.
        proxy_headers=bool(env().proxies),
        forwarded_allow_ips=env().proxies,
        # A stream lasts as long as its reader likes, and readers come back by Last-Event-ID.
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS,
        timeout_keep_alive=75,
    )
    listeners = [socket.socket(fileno=options.fd)] if options.fd is not None else None
    server = Server(config)
    if listeners is not None and (places := env().web_processes) > 1:
        counts = ConnectionCounts(env().instance.run_dir / "connections", options.place, places)
        server = BalancedServer(config, counts)
    server.run(sockets=listeners)


if __name__ == "__main__":
    main()
