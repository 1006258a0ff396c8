"""Wakes the calls of experiments in a process of the playground's own.

Without such a process a Celery task wakes them in a worker.
"""

from __future__ import annotations

import logging
import threading

import redis
from django.db import Error as DatabaseError

from apps.core.connections import close_dead
from apps.playground import due_signal
from apps.playground.call_worker import call_worker
from apps.playground.services import model_calls

log = logging.getLogger(__name__)


class DueCallListener:
    """A thread that wakes the calls of this process; started once."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="due-calls", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the calls; another process makes them again after their lease."""
        self._stopped.set()
        call_worker.stop()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                due_signal.wait()
            except redis.RedisError:
                self._stopped.wait(due_signal.POLL_SECONDS)
            try:
                close_dead()
                if not self._stopped.is_set() and model_calls.has_due():
                    call_worker.wake()
            except DatabaseError:
                log.warning("Looking for due calls failed; the next look retries.")
