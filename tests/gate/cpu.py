"""The CPU time of a run: unlike minutes, it does not depend on what else the machine does."""

from __future__ import annotations

import resource


def read_cpu_seconds() -> float:
    """Return the seconds of this process, and of its ended children with what they had waited for.

    Servers that still run are not counted.
    """
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
