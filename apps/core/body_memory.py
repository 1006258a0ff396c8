"""How many bytes of requests this process holds at once.

More clients than the database keeps up with send bodies that wait in memory. Beyond the limit a
request is told to come again, before its body is read: that is cheaper than to fail for all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from apps.core import errors

RESERVATION_KEY = "slipway.held"
"""Where an environment keeps its request's `Held`."""


class BudgetExceeded(errors.Unavailable):
    code, detail = "busy", "This server holds as many requests as it can; send again in a moment."


class Reservation:
    """What one request holds."""

    __slots__ = ("_room", "size")

    def __init__(self, room: MemoryBudget) -> None:
        self._room, self.size = room, 0

    def add(self, size: int) -> None:
        """Hold so much more; `Full` when there is no room for it."""
        self._room.take(size)
        self.size += size


class MemoryBudget:
    """A number of bytes that requests share."""

    def __init__(self) -> None:
        self.taken = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        with self._lock:
            # A single request always fits: its own limit is another one.
            if self.taken and self.taken + size > settings.BODY_MEMORY_BYTES:
                raise BudgetExceeded
            self.taken += size

    @contextmanager
    def holding(self) -> Iterator[Reservation]:
        """What is held in here is given back at the end."""
        held = Reservation(self)
        try:
            yield held
        finally:
            with self._lock:
                self.taken -= held.size


body_memory_budget = MemoryBudget()
