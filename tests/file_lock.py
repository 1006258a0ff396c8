"""A lock between the processes of a test run, with a deadline."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(path: Path, seconds: float) -> Iterator[int]:
    """Hold the exclusive lock of a file and yield its descriptor; `TimeoutError` after `seconds`.

    The kernel releases the lock of a process that dies.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} was locked for {seconds} s") from None
                time.sleep(0.1)
        yield lock
    finally:
        os.close(lock)
