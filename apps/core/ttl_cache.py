"""What is looked up often and may be a moment old."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Entry(Generic[V]):
    __slots__ = ("good_until", "renew_at", "value")

    def __init__(self, value: V, renew_at: float, good_until: float) -> None:
        self.value, self.renew_at, self.good_until = value, renew_at, good_until


class TTLCache(Generic[K, V]):
    """Values by key, none older than `seconds`; of this process.

    In the last third of a value's time one caller renews it while the others still use it, so that
    they do not all ask the database at once, again and again.
    """

    def __init__(self, seconds: float, size: int = 10_000) -> None:
        self.seconds, self._size = seconds, size
        self._entries: dict[K, _Entry[V]] = {}

    def get(self, key: K, look_up: Callable[[K], V]) -> V:
        """The value, looked up if need be."""
        entry, now = self._entries.get(key), time.monotonic()
        if entry is not None and entry.good_until > now:
            if entry.renew_at > now:
                return entry.value
            entry.renew_at = entry.good_until
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
        """The value if it is known and not too old."""
        entry = self._entries.get(key)
        return entry.value if entry is not None and entry.good_until > time.monotonic() else None

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.good_until > time.monotonic()

    def clear(self) -> None:
        self._entries.clear()
