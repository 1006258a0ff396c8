"""The proxy's program: `python -P -m apps.deployments.sandbox.egress.server FD`.

Each message on the socket FD is one sandbox: its rules (JSON), a descriptor of its process, and its
listening sockets. The program ends when the platform's process closes the socket or dies. It parses
what agent code sends, so as root it gives up its rights first.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401 - after the change of the user no module can be loaded
import functools
import gc
import json
import os
import resource
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from typing import Any

from .connections import Connections
from .package_index import Index, certificates
from .proxy import MAX_LISTENERS
from .rules import Rules

MAX_MESSAGE_BYTES = 256 * 1024
_UNPRIVILEGED_ID = 65534
_NICE = 5


class EgressServer:
    """The sandboxes that this process serves."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until the platform's process closes its end of the socket."""
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._receive)
        await self._ended.wait()

    def _receive(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(
            self._control, MAX_MESSAGE_BYTES, MAX_LISTENERS + 1
        )
        if not message:
            self._loop.remove_reader(self._control)
            self._ended.set()
            return
        task = self._loop.create_task(self._serve(json.loads(message), descriptors))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Serve one sandbox until its process ends."""
        process, *listeners = descriptors
        ended = asyncio.Event()
        self._loop.add_reader(process, ended.set)
        rules = Rules(message["networks"], [(host, port) for host, port in message["hosts"]])
        indexes = {
            port: Index(f"http://127.0.0.1:{port}", origin, authorization)
            for port, origin, authorization in message["indexes"]
        }
        connections = Connections(
            rules, uses_operator_proxy=message["uses_operator_proxy"], indexes=indexes
        )
        handlers: list[Callable[[StreamReader, StreamWriter], Awaitable[None]]] = [
            connections.serve_proxy,
            *(
                functools.partial(connections.serve_forward, host, port)
                for host, port in message["forwards"]
            ),
        ]
        servers = [
            await asyncio.start_server(handler, sock=socket.socket(fileno=listener))
            for handler, listener in zip(handlers, listeners, strict=True)
        ]
        await ended.wait()
        self._loop.remove_reader(process)
        os.close(process)
        for server in servers:
            server.close()
        await connections.close()


def _drop_privileges() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(_NICE)
    if os.geteuid() == 0:
        certificates()  # reads files of the operator
        os.setgroups([])
        os.setresgid(*[_UNPRIVILEGED_ID] * 3)
        os.setresuid(*[_UNPRIVILEGED_ID] * 3)


async def _main(control: socket.socket) -> None:
    await EgressServer(control).run()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _drop_privileges()
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(control))


if __name__ == "__main__":
    main()
