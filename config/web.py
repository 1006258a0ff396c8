"""The web process: uvicorn, set up for long streams behind a short stop."""

import argparse
import asyncio
import gc
import socket
from contextlib import suppress

import uvicorn

from config.env import env

STOP_SECONDS = 5
_COLLECT_AFTER = 20_000, 20, 50
"""Objects, and rounds: a request of a hundred runs makes thousands that all end with it."""
_TURN_SECONDS = 0.001
_LONGEST_TURN_SECONDS = 0.002


class Server(uvicorn.Server):
    """A server that does not look for garbage in what lasts as long as it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)


class SharingServer(Server):
    """A server that leaves some connections to the other web processes of the same socket.

    The one that wakes first would take all that come at once, and clients keep theirs for hours: so
    after each, the more it has the longer it lets the others go first.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the client is gone already
                await asyncio.sleep(0.05)
                continue
            with suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, connection)
            turn = _TURN_SECONDS * len(self.server_state.connections)
            await asyncio.sleep(min(turn, _LONGEST_TURN_SECONDS))

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def main() -> None:
    """Serve on the socket that the supervisor holds (`--fd`), or on HOST and PORT."""
    parser = argparse.ArgumentParser(prog="config.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
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
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=75,
    )
    listeners = [socket.socket(fileno=options.fd)] if options.fd is not None else None
    shares = listeners is not None and env().web_processes > 1
    (SharingServer if shares else Server)(config).run(sockets=listeners)


if __name__ == "__main__":
    main()
