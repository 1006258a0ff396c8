"""Bounds on the bytes of request bodies that this process holds (backpressure).

When clients send faster than the database stores, bodies wait in memory. Received bytes count, not
declared ones: a connection that only announces a body holds nothing. Beyond the budget, or beyond
the share of one caller, a request is refused with 503 and `Retry-After`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import NamedTuple, Self

from django.conf import settings

from apps.core import errors

RESERVATION_KEY = "slipway.held"
"""WSGI environ key of the request's `Reservation`."""


class BudgetExceeded(errors.Unavailable):
    code, detail = "busy", "The server holds too many request bodies. Retry in a moment."


class MemoryOwner(NamedTuple):
    """Whom bytes count towards, and its share of the budget as a divisor."""

    identity: Hashable
    divisor: int


def caller_share(identity: Hashable) -> MemoryOwner:
    """Half of the budget: no organization or user takes all of it."""
    return MemoryOwner(identity, 2)


def address_share(address: str | None) -> MemoryOwner:
    """An eighth of the budget, for bodies whose sender is not authenticated yet."""
    return MemoryOwner(address, 8)


class Reservation:
    """The bytes that one request holds; as a context manager, released at the end of the block."""

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self.size = budget, 0
        self._owner: MemoryOwner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def add(self, size: int) -> None:
        """Reserve more bytes. Raises `BudgetExceeded` beyond the budget or the owner's share."""
        self._budget.acquire(size, self._owner)
        self.size += size

    def assign(self, owner: MemoryOwner) -> None:
        """Count the bytes towards this owner. Raises `BudgetExceeded` beyond its share."""
        size = self.size
        self.release()
        self._owner = owner
        if size:
            self.add(size)

    def release(self) -> None:
        """Return the bytes. Safe to repeat."""
        if self.size:
            self._budget.release(self.size, self._owner)
        self.size = 0


class MemoryBudget:
    """A byte budget that all requests of the process share."""

    def __init__(self) -> None:
        self.used = 0
        self._used_by_owner: Counter[MemoryOwner] = Counter()
        self._lock = threading.Lock()

    def acquire(self, size: int, owner: MemoryOwner | None = None) -> None:
        with self._lock:
            limit = settings.BODY_MEMORY_BYTES
            # A single request always fits: MAX_BODY_BYTES bounds it.
            if self.used and self.used + size > limit:
                raise BudgetExceeded
            if owner is not None:
                used = self._used_by_owner[owner]
                if used and used + size > limit // owner.divisor:
                    raise BudgetExceeded
                self._used_by_owner[owner] = used + size
            self.used += size

    def release(self, size: int, owner: MemoryOwner | None = None) -> None:
        with self._lock:
            self.used -= size
            if owner is not None:
                self._used_by_owner[owner] -= size
                if self._used_by_owner[owner] <= 0:
                    del self._used_by_owner[owner]

    def reserve(self) -> Reservation:
        """Return an empty reservation, to be released by its context manager."""
        return Reservation(self)


body_memory_budget = MemoryBudget()
