"""The CPU time of each owner's sandboxes, for machines without control groups.

An owner is greedy if its sandboxes used more than a fair share of the CPUs in the last window: the
CPUs divided by the owners that were busy then and one more, the platform. Its threads get a lower
priority until they have used less for `_CALM_WINDOWS`. On an idle machine that costs it nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Mapping

WINDOW_SECONDS = 2.0
_CALM_WINDOWS = 3
_BUSY_SHARE = 0.05
"""Of a CPU: an owner that used less takes part in no division."""


def find_greedy(used: Mapping[str, float], seconds: float, cpus: int) -> set[str]:
    """Return the owners that used more CPU seconds than their share of the time."""
    busy = [owner for owner, amount in used.items() if amount > _BUSY_SHARE * seconds]
    share = cpus * seconds / (len(busy) + 1)
    return {owner for owner in busy if used[owner] > share}


class CpuShares:
    """Adds up what the trees of each owner used. For one thread."""

    def __init__(self, now: float, cpus: int | None = None) -> None:
        self._cpus = cpus or os.cpu_count() or 1
        self._window_started_at = now
        self._used: defaultdict[str, float] = defaultdict(float)
        self._totals: dict[Hashable, float] = {}
        self._greedy: dict[str, int] = {}
        """Greedy owners with the number of calm windows since."""

    def record(self, owner: str, tree: Hashable, total: float, now: float) -> None:
        """Note the CPU seconds that a tree has used since its start."""
        self._end_window(now)
        # A tree may lose the time of a process that nothing waited for.
        self._used[owner] += max(0.0, total - self._totals.get(tree, total))
        self._totals[tree] = total

    def forget(self, tree: Hashable) -> None:
        self._totals.pop(tree, None)

    def is_greedy(self, owner: str) -> bool:
        return owner in self._greedy

    def _end_window(self, now: float) -> None:
        seconds = now - self._window_started_at
        if seconds < WINDOW_SECONDS:
            return
        greedy = find_greedy(self._used, seconds, self._cpus)
        calm = {owner: count + 1 for owner, count in self._greedy.items()}
        self._greedy = {owner: count for owner, count in calm.items() if count < _CALM_WINDOWS}
        self._greedy |= dict.fromkeys(greedy, 0)
        self._used.clear()
        self._window_started_at = now
