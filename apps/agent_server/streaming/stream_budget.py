"""Byte budgets of the streams that a worker writes: per run, per deployment and in total.

Redis also holds messages, counters and sessions, and rejects writes when its memory is full. Beyond
a budget the oldest batches of the writing run are removed, and a batch that does not fit is only
published: connected readers get it, PostgreSQL has the events of resumable runs and every result.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django.conf import settings

from apps.agent_server.streaming.streams import EventId

SMALL_BATCH_BYTES = 16 * 1024
"""Batches up to this size are always stored: the end of a run must reach late readers."""


class StreamRetention(NamedTuple):
    """How much of a stream stays in Redis when a batch is written."""

    is_stored: bool
    oldest: EventId | None
    """Entries before it are removed; None to keep them."""


KEEP = StreamRetention(is_stored=True, oldest=None)


@dataclass(slots=True)
class _RunBytes:
    deployment: UUID | None
    entries: deque[tuple[EventId, int]] = field(default_factory=deque)
    size: int = 0


class StreamBudget:
    """The stored bytes of the streams of one worker."""

    def __init__(self) -> None:
        self._max_run_bytes: int = settings.STREAM_BYTES_PER_RUN
        self._max_deployment_bytes: int = settings.STREAM_BYTES_PER_DEPLOYMENT
        self._max_bytes: int = settings.STREAM_BYTES
        self._runs: dict[UUID, _RunBytes] = {}
        self._size_by_deployment: Counter[UUID | None] = Counter()
        self._size = 0
        self._expiring: list[tuple[float, int, UUID | None, int]] = []
        self._ended_count = 0

    def open(self, run_id: UUID, deployment: UUID | None) -> None:
        """Count the batches of the run towards the deployment."""
        self._runs.setdefault(run_id, _RunBytes(deployment))

    def add(self, run_id: UUID, last: EventId, size: int) -> StreamRetention:
        """Count a batch whose last event has the id `last`."""
        self._release_expired()
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _RunBytes(None)
        has_removed = False
        while run.entries and self._exceeds(run, size):
            _, removed = run.entries.popleft()
            self._count(run, -removed)
            has_removed = True
        is_stored = size <= SMALL_BATCH_BYTES or not self._exceeds(run, size)
        if is_stored:
            run.entries.append((last, size))
            self._count(run, size)
            if not has_removed:
                return KEEP
        oldest = run.entries[0][0] if run.entries else last
        return StreamRetention(is_stored, oldest if has_removed else None)

    def end(self, run_id: UUID, lifetime_seconds: float) -> None:
        """Release the bytes of the run when its stream has expired."""
        run = self._runs.pop(run_id, None)
        if run is not None and run.size:
            self._ended_count += 1
            expires_at = time.monotonic() + lifetime_seconds
            entry = (expires_at, self._ended_count, run.deployment, run.size)
            heapq.heappush(self._expiring, entry)

    def _exceeds(self, run: _RunBytes, size: int) -> bool:
        return (
            run.size + size > self._max_run_bytes
            or self._size_by_deployment[run.deployment] + size > self._max_deployment_bytes
            or self._size + size > self._max_bytes
        )

    def _count(self, run: _RunBytes, size: int) -> None:
        run.size += size
        self._add(run.deployment, size)

    def _add(self, deployment: UUID | None, size: int) -> None:
        self._size += size
        self._size_by_deployment[deployment] += size
        if not self._size_by_deployment[deployment]:
            del self._size_by_deployment[deployment]

    def _release_expired(self) -> None:
        now = time.monotonic()
        while self._expiring and self._expiring[0][0] <= now:
            _, _, deployment, size = heapq.heappop(self._expiring)
            self._add(deployment, -size)
