"""The event loop of a host, and of runs with isolated loops."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any


class TimedSelector(selectors.DefaultSelector):
    """A selector that notes since when its loop has been busy."""

    busy_since = 0.0
    """Monotonic time; 0 while the loop waits for events."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.busy_since = 0.0
        events = super().select(timeout)
        self.busy_since = time.monotonic()
        return events


class Loop(asyncio.SelectorEventLoop):
    """An event loop with cheap `call_soon_threadsafe`, which survives `sys.exit` in a task.

    LangGraph passes each streamed part through `call_soon_threadsafe`, mostly on the loop's own
    thread, where the two system calls of a wake-up are unnecessary. It is also where writers of
    parts can be held back.
    """

    delay_writer: Callable[[int], None] | None = None
    """Called for each part with the number of parts in its queue; may block."""

    def __init__(self) -> None:
        self.selector = TimedSelector()
        super().__init__(self.selector)
        self._own_thread = threading.get_ident()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.delay_writer is not None:
            queue = getattr(callback, "__self__", None)
            if isinstance(queue, asyncio.Queue):
                self.delay_writer(queue.qsize())
        if threading.get_ident() == self._own_thread:
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_forever(self) -> None:
        """Continue after a `SystemExit` of a task, which would stop asyncio's loop.

        The exception has already ended the task, so only its own run fails.
        """
        while True:
            try:
                return super().run_forever()
            except SystemExit:
                continue
