"""Read what a child process writes, with a deadline."""

from __future__ import annotations

import os
import select
import time
from typing import IO, Any


def read_line(stream: IO[Any], seconds: float = 180) -> bytes:
    """Return the next line of the pipe, or what there is of it when the pipe ends.

    The bytes are taken from the descriptor, so nothing is left in a buffer, where `poll` would
    not see it. Raises `TimeoutError`.
    """
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    deadline = time.monotonic() + seconds
    line = b""
    while not line.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError(f"The process wrote no whole line in {seconds} s, only {line!r}.")
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line
