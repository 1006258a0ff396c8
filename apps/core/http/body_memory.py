"""Bound on the bytes of request bodies that this process holds (backpressure).

When clients send faster than the database stores, bodies wait in memory. Beyond the limit a request
is refused with 503 and `Retry-After` before its body is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from apps.core import errors

RESERVATION_KEY = "slipway.held"
"""WSGI environ key of the request's `Reservation`."""


class BudgetExceeded(errors.Unavailable):
    code, detail = "busy", "The server holds too many request bodies. Retry in a moment."


class Reservation:
    """The bytes that one request holds."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self.size = budget, 0

    def add(self, size: int) -> None:
        """Reserve more bytes. Raises `BudgetExceeded` beyond the limit."""
        self._budget.acquire(size)
        self.size += size


class MemoryBudget:
    """A byte budget that all requests of the process share."""

    def __init__(self) -> None:
        self.used = 0
        self._lock = threading.Lock()

    def acquire(self, size: int) -> None:
        with self._lock:
            # A single request always fits: MAX_BODY_BYTES bounds it.
            if self.used and self.used + size > settings.BODY_MEMORY_BYTES:
                raise BudgetExceeded
            self.used += size

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Yield a reservation that is released at the end of the block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            with self._lock:
                self.used -= reservation.size


body_memory_budget = MemoryBudget()
