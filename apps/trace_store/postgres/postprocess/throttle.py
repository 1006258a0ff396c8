"""How much of the machine settling takes: whoever waits for an answer goes first."""

from __future__ import annotations

import os
import time

import psutil

from apps.trace_store.postgres.postprocess import queue

_REST_FACTOR = 0.1
_BUSY_REST_FACTOR = 3.0
_BURST_REST_FACTOR = 12.0
"""Rest after a batch, in times of what the batch took."""
_MAX_REST_SECONDS = 1.0
_MAX_BURST_REST_SECONDS = 2.0
_BUSY_SHARE = 0.75
"""A machine is that with so much of its processors in use."""


class Throttle:
    """How large the next batch is, and how long to rest after it.

    More than could be settled without any rest is a burst: a larger share of a busy machine would
    slow down those who send it and be left behind all the same. It is settled when it is over.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._seen_at = time.monotonic()
        self._newest = 0
        self._is_burst = False

    @property
    def runs(self) -> int:
        """How many runs to settle at once: fewer where the rest after them is long."""
        return self._runs // 4 if self._is_burst else self._runs

    def rest(self, settled: int, took: float) -> float:
        """The seconds to rest after a batch of so many runs that took so long."""
        self._is_burst = self._comes_too_fast(settled, took) and _cpu_share() > _BUSY_SHARE
        if self._is_burst:
            return min(took * _BURST_REST_FACTOR, _MAX_BURST_REST_SECONDS)
        return min(took * (_BUSY_REST_FACTOR if _is_busy() else _REST_FACTOR), _MAX_REST_SECONDS)

    def _comes_too_fast(self, settled: int, took: float) -> bool:
        """Whether more came since the last batch than could be settled in all that time."""
        now, before = time.monotonic(), self._seen_at
        newest, runs_of_last = queue.newest_entry()
        rows = newest - self._newest if self._newest and newest else 0
        self._seen_at, self._newest = now, newest or self._newest
        return rows * runs_of_last * took > settled * (now - before)


def _is_busy() -> bool:
    """Whether this machine's processors are wanted by others."""
    return os.getloadavg()[0] > _BUSY_SHARE * (os.cpu_count() or 1)


def _cpu_share() -> float:
    """How much of the processors was in use since the last call."""
    return psutil.cpu_percent() / 100
