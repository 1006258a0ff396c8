"""Limits the share of the machine that post-processing uses, in favour of requests."""

from __future__ import annotations

import os
import time

import psutil

from apps.trace_store.postgres.postprocess import queue

_PAUSE_FACTOR = 0.1
_BUSY_PAUSE_FACTOR = 3.0
_BURST_PAUSE_FACTOR = 12.0
"""Pause after a batch, as a multiple of its duration."""
_MAX_PAUSE_SECONDS = 1.0
_MAX_BURST_PAUSE_SECONDS = 2.0
_BUSY_SHARE = 0.75
"""The CPU share above which the machine counts as busy."""


class Throttle:
    """Chooses the batch size and the pause after each batch.

    A burst is a time in which runs arrive faster than they could be processed without pauses.
    Processing them at once on a busy machine would slow down the senders without keeping up, so
    most of the work is done afterwards.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._seen_at = time.monotonic()
        self._newest = 0
        self._is_burst = False

    @property
    def runs(self) -> int:
        """The batch size, which is smaller if pauses are long."""
        return self._runs // 4 if self._is_burst else self._runs

    def pause_seconds(self, processed: int, seconds: float) -> float:
        """The seconds to pause after a batch of this size and duration."""
        self._is_burst = self._arrives_too_fast(processed, seconds) and _cpu_share() > _BUSY_SHARE
        if self._is_burst:
            return min(seconds * _BURST_PAUSE_FACTOR, _MAX_BURST_PAUSE_SECONDS)
        return min(
            seconds * (_BUSY_PAUSE_FACTOR if _is_busy() else _PAUSE_FACTOR), _MAX_PAUSE_SECONDS
        )

    def _arrives_too_fast(self, processed: int, seconds: float) -> bool:
        """Whether more arrived since the last batch than could be processed in that time."""
        now, before = time.monotonic(), self._seen_at
        newest, runs_per_entry = queue.newest_entry()
        new_entries = newest - self._newest if self._newest and newest else 0
        self._seen_at, self._newest = now, newest or self._newest
        return new_entries * runs_per_entry * seconds > processed * (now - before)


def _is_busy() -> bool:
    """Whether the load of this machine is high."""
    return os.getloadavg()[0] > _BUSY_SHARE * (os.cpu_count() or 1)


def _cpu_share() -> float:
    """The CPU share in use since the last call."""
    return psutil.cpu_percent() / 100
