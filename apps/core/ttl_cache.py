"""A per-process cache of values that may be a few seconds stale."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Entry(Generic[V]):
    __slots__ = ("expires_at", "renew_at", "value")

    def __init__(self, value: V, renew_at: float, expires_at: float) -> None:
        self.value, self.renew_at, self.expires_at = value, renew_at, expires_at


class TTLCache(Generic[K, V]):
    """Values by key, none older than `seconds`.

    In the last third of a value's lifetime one caller renews it while the others still use the old
    one, which avoids a burst of identical queries at expiry.
    """

    def __init__(self, seconds: float, size: int = 10_000) -> None:
        self.seconds, self._size = seconds, size
        self._entries: dict[K, _Entry[V]] = {}

    def get(self, key: K, look_up: Callable[[K], V]) -> V:
        """Return the cached value, or look it up."""
        entry, now = self._entries.get(key), time.monotonic()
        if entry is not None and entry.expires_at > now:
            if entry.renew_at > now:
                return entry.value
            entry.renew_at = entry.expires_at
        try:
            value = look_up(key)
        except BaseException:
            if entry is not None:
                entry.renew_at = now
            raise
        if len(self._entries) >= self._size:
            self._entries.clear()
        self._entries[key] = _Entry(value, now + self.seconds * 2 / 3, now + self.seconds)
        return value

    def peek(self, key: K) -> V | None:
        """Return the value if it is cached and has not expired."""
        entry = self._entries.get(key)
        return entry.value if entry is not None and entry.expires_at > time.monotonic() else None

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.expires_at > time.monotonic()

    def discard(self, key: K) -> None:
        """Forget the value, if it is cached."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
