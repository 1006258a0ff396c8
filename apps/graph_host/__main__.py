"""Starts a graph host: `python -P -m graph_host --fd N [--config langgraph.json]`.

The socket is inherited as file descriptor N. There is no address to connect to, and its end is the
end of the host: when the worker dies, so does everything that ran for it, at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .host import Host

# Synchronous nodes run on threads, one for as long as it takes.
THREADS = 100


class Loop(asyncio.SelectorEventLoop):
    """An event loop that does not wake itself up from its own thread, and that no node can end.

    LangGraph hands over every streamed part by `call_soon_threadsafe`, mostly from the loop's own
    thread, where the two system calls of a wake-up are for nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own_thread = threading.get_ident()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self._own_thread:
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_forever(self) -> None:
        """As ever; but asyncio lets go of everything when a task calls `sys.exit`.

        The task has ended by then and whoever awaits it hears of it: it is the end of one run,
        and others go on.
        """
        while True:
            try:
                return super().run_forever()
            except SystemExit:
                continue


async def serve(sock: socket.socket, config: Path) -> None:
    """Serve the socket until it ends."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "node"))
    await Host(sock, config).serve()


def die_with_the_worker(fd: int) -> None:
    """End this process when the socket's other end is closed, also while code blocks the loop."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    while not poll.poll():
        pass
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="graph_host", description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--config", type=Path, default=Path("langgraph.json"))
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Import cycles of the libraries are not worth walking through at every collection.
    gc.set_threshold(10_000, 20, 50)
    sock = socket.socket(fileno=given.fd)
    threading.Thread(target=die_with_the_worker, args=[given.fd], daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(serve(sock, given.config.resolve()))


if __name__ == "__main__":
    main()
