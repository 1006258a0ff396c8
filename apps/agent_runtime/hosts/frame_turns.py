"""Divides the time that a worker has for the frames of graph hosts between organizations.

A frame costs time on the engine's loop, and later in Redis and PostgreSQL, which all runs of the
worker share. While several organizations send frames, each gets an equal part of `percent` of the
time: a host of one that is ahead is not read until it is not, and so blocks when the socket is
full. An organization that sends alone is never held up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

BYTES_PER_SECOND = 64 * 1024 * 1024
"""What a second pays for besides the measured time: writing the bytes elsewhere."""
CREDIT_SECONDS = 0.25
"""What an organization may use at once after it has used little."""
ACTIVE_SECONDS = 1.0
"""An organization that sent no frame for so long takes no part in the division."""
MAX_PAUSE_SECONDS = 0.25
"""Until the next decision: the other organizations may have stopped."""


@dataclass(slots=True)
class _Account:
    used: float
    """Seconds used beyond the share; negative for a credit."""
    settled_at: float
    active_at: float


class FrameTurns:
    """The accounts of the organizations whose hosts one engine reads. For one event loop."""

    def __init__(self, percent: int, clock: Callable[[], float]) -> None:
        self._share = percent / 100
        self._clock = clock
        self._accounts: dict[UUID, _Account] = {}

    def charge(self, organization_id: UUID, size: int, seconds: float) -> float:
        """Note what reading so many bytes cost; return for how long to read no more of its hosts.

        `seconds` is how long the frames kept the loop from others, on a busy machine, too.
        """
        now = self._clock()
        account = self._accounts.get(organization_id)
        if account is None:
            account = self._accounts[organization_id] = _Account(-CREDIT_SECONDS, now, now)
        count = self._count_active(organization_id, now)
        share = self._share / count
        settled = account.used - share * (now - account.settled_at)
        account.used = max(settled, -CREDIT_SECONDS) + seconds + size / BYTES_PER_SECOND
        account.settled_at = account.active_at = now
        if count == 1:  # what it uses now is not held against it later
            account.used = min(account.used, 0.0)
        return min(max(account.used, 0.0) / share, MAX_PAUSE_SECONDS)

    def _count_active(self, organization_id: UUID, now: float) -> int:
        """Return the number of active organizations, this one included; forget the others."""
        for other, account in list(self._accounts.items()):
            if other != organization_id and now - account.active_at > ACTIVE_SECONDS:
                del self._accounts[other]
        return len(self._accounts)
