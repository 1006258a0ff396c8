"""Blocks nodes that stream faster than the worker reads.

LangGraph puts what a node streams into a queue without a limit. The run's consumer waits for the
worker, the node does not, so the queue would grow to the memory limit of the host.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError

from .event_loop import Loop
from .wire import HIGH_WATER_BYTES, Link, LinkClosed

MAX_WAITING_PARTS = 16
"""Parts in the queue of a run above which its writer blocks, while the worker is behind."""
MAX_UNSENT_BYTES = 8 * HIGH_WATER_BYTES
"""Of the host: above it every writer blocks, also one whose parts are consumed at once."""
MAX_BLOCK_SECONDS = 5.0
"""For a writer on another thread. The host's loop may wait for that thread."""


class Backpressure:
    """Holds back the writers of all loops of a host. `delay_writer` is called for each part."""

    def __init__(self, link: Link, loop: Loop) -> None:
        """The calling thread runs the loop, to which the link belongs."""
        self._link = link
        self._loop = loop
        self._thread = threading.get_ident()
        self._has_given_up = False

    def delay_writer(self, waiting: int) -> None:
        """Return once the worker has read enough; at once if it is not behind."""
        if not self._link.is_full:
            self._has_given_up = False
        elif waiting >= MAX_WAITING_PARTS or self._link.unsent_bytes > MAX_UNSENT_BYTES:
            self._wait()

    def _wait(self) -> None:
        if threading.get_ident() == self._thread:
            selector = self._loop.selector
            selector.busy_since = 0.0  # not the author's code blocks the loop
            self._link.flush_blocking()
            selector.busy_since = time.monotonic()
        elif not self._has_given_up:
            drained = asyncio.run_coroutine_threadsafe(self._link.drain(), self._loop)
            try:
                drained.result(MAX_BLOCK_SECONDS)
            except TimeoutError:
                drained.cancel()
                self._has_given_up = True
            except (LinkClosed, CancelledError):
                pass  # the host exits
