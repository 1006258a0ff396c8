"""Starts a graph host: `python -P -m graph_host --fd N [--config langgraph.json]`.

The socket is inherited as file descriptor N. When it closes, because the worker stopped or died,
the host exits at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import os
import select
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .event_loop import Loop
from .host import Host

MAX_NODE_THREADS = 100
"""Threads for synchronous nodes."""


async def serve(sock: socket.socket, config: Path) -> None:
    """Serve the socket until it is closed."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_NODE_THREADS, "node"))
    await Host(sock, config).serve()


def exit_with_worker(fd: int) -> None:
    """Exit when the worker closes the socket, even while agent code blocks the loop."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    while not poll.poll():
        pass
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="graph_host", description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--config", type=Path, default=Path("langgraph.json"))
    parser.add_argument(
        "--dump-import-seconds",
        type=float,
        help="dump the stack of a slow import",
    )
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Fewer collections: the libraries keep many objects alive.
    gc.set_threshold(10_000, 20, 50)
    if args.dump_import_seconds is not None:
        faulthandler.dump_traceback_later(args.dump_import_seconds, repeat=True)
    sock = socket.socket(fileno=args.fd)
    threading.Thread(target=exit_with_worker, args=[args.fd], daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(serve(sock, args.config.resolve()))


if __name__ == "__main__":
    main()
