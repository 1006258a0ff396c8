"""Divides the time that a worker has for the frames of graph hosts between organizations.

A frame costs time on the engine's loop, and later in Redis and PostgreSQL, which all runs of the
worker share. While several organizations send frames, `percent` of the time is for them: each has
an equal part, and those that need more have what the others leave. A host of an organization that
is ahead is not read until it is not, and so blocks when its socket is full. An organization that
sends alone is never delayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

BYTES_PER_SECOND = 32 * 1024 * 1024
"""What a second pays for besides the measured time: writing the bytes elsewhere."""
CREDIT_SECONDS = 0.25
"""What an organization may use at once after it has used little."""
ACTIVE_SECONDS = 1.0
"""An organization that sent no frame for so long takes no part in the division."""
MAX_PAUSE_SECONDS = 0.25
"""Until the next decision: the other organizations may have stopped."""
_SHARE_SECONDS = 0.05
"""A share is computed again after this time."""


@dataclass(slots=True)
class _Account:
    used: float
    """Seconds used beyond the share; negative for a credit."""
    charged_at: float
    rate: float = 0.0
    """Seconds used per second, on average over the last `ACTIVE_SECONDS`."""
    share: float = 1.0
    shared_at: float = -math.inf

    def rate_at(self, now: float) -> float:
        return self.rate * math.exp((self.charged_at - now) / ACTIVE_SECONDS)


class FrameTurns:
    """The accounts of the organizations whose hosts one engine reads. For one event loop."""

    def __init__(self, percent: int, clock: Callable[[], float]) -> None:
        self._total = percent / 100
        self._clock = clock
        self._accounts: dict[UUID, _Account] = {}

    def charge(self, organization_id: UUID, size: int, seconds: float) -> float:
        """Note what reading so many bytes cost; return for how long to read no more of its hosts.

        `seconds` is how long the frames kept the loop from others, on a busy machine, too.
        """
        now = self._clock()
        account = self._accounts.get(organization_id)
        if account is None:
            account = self._accounts[organization_id] = _Account(-CREDIT_SECONDS, now)
        if now - account.shared_at > _SHARE_SECONDS:
            account.share, account.shared_at = self._compute_share(organization_id, now), now
        cost = seconds + size / BYTES_PER_SECOND
        paid = account.share * (now - account.charged_at)
        account.used = max(account.used - paid, -CREDIT_SECONDS) + cost
        account.rate = account.rate_at(now) + cost / ACTIVE_SECONDS
        account.charged_at = now
        if len(self._accounts) == 1:  # what it uses now is not held against it later
            account.used = min(account.used, 0.0)
        return min(max(account.used, 0.0) / account.share, MAX_PAUSE_SECONDS)

    def _compute_share(self, organization_id: UUID, now: float) -> float:
        """Return the seconds per second that the organization may use; forget inactive ones."""
        left = self._total
        for other, account in list(self._accounts.items()):
            if other == organization_id:
                continue
            if now - account.charged_at > ACTIVE_SECONDS:
                del self._accounts[other]
            else:
                left -= account.rate_at(now)
        return max(left, self._total / len(self._accounts))
