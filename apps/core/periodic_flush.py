"""Writes counts held in memory to PostgreSQL, at an interval and at process exit."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error as DatabaseError

from apps.core.connections import close_dead

log = logging.getLogger(__name__)
FLUSH_INTERVAL_SECONDS = 2.0
"""What a killed process may lose."""


@dataclass(frozen=True)
class PeriodicFlush:
    """A thread that calls `flush`, which keeps its counts if it raises."""

    name: str
    """The thread's name, also in the logs."""
    flush: Callable[[], None]

    def start(self) -> None:
        threading.Thread(target=self._flush_forever, name=self.name, daemon=True).start()
        atexit.register(self.flush_at_exit)

    def _flush_forever(self) -> None:
        pause = threading.Event()
        while not pause.wait(FLUSH_INTERVAL_SECONDS):
            self.flush_once()

    def flush_once(self) -> None:
        """Flush on a live connection; without a database the counts remain in memory."""
        try:
            close_dead()
            self.flush()
        except DatabaseError:
            log.warning("could not write %s; they remain in memory", self.name)

    def flush_at_exit(self) -> None:
        try:
            self.flush()
        except Exception:  # noqa: BLE001  (the process exits, perhaps because of the database)
            log.warning("could not write %s at exit", self.name)
