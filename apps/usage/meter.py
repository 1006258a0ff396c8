"""Usage counters in memory, flushed to PostgreSQL every two seconds.

Each process upserts its own rows with its totals of the hour, so that repeated writes are
idempotent and processes do not contend. A killed process loses up to two seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from django.db import connection

from apps.core.periodic_flush import PeriodicFlush

Figures = Mapping[UUID, Mapping[str, float]]
"""By workspace and measure (`models.MEASURES`)."""
Source = Callable[[datetime, datetime, Collection[UUID] | None], Figures]
"""Called with begin and end (whole hours) and workspaces, or None for all."""

_sources: list[Source] = []


def register_source(source: Source) -> None:
    """Add a source. Safe to repeat."""
    if source not in _sources:
        _sources.append(source)


def collect_sources(
    begin: datetime, end: datetime, workspaces: Collection[UUID] | None
) -> list[Figures]:
    """Return the figures of every source."""
    return [source(begin, end, workspaces) for source in _sources]


def total_of_sources(
    begin: datetime, end: datetime, workspaces: Collection[UUID]
) -> dict[str, float]:
    """Return the sums over the workspaces."""
    sums: dict[str, float] = {}
    for figures in collect_sources(begin, end, workspaces):
        for measures in figures.values():
            for measure, value in measures.items():
                sums[measure] = sums.get(measure, 0) + value
    return sums


RETENTION = timedelta(days=3)
"""Older hours are final in `UsageDay`."""

_SET = """
INSERT INTO usage_usagecounter (workspace_id, hour, process, bytes, agent_runs, agent_seconds)
SELECT counted.workspace_id, counted.hour, %s, counted.bytes, counted.runs, counted.seconds
FROM unnest(%s::uuid[], %s::timestamptz[], %s::int8[], %s::int8[], %s::float8[])
     AS counted(workspace_id, hour, bytes, runs, seconds)
ON CONFLICT (workspace_id, hour, process) DO UPDATE
SET bytes = excluded.bytes, agent_runs = excluded.agent_runs,
    agent_seconds = excluded.agent_seconds
"""
_SUM = """
SELECT workspace_id, sum(bytes)::float8, sum(agent_runs)::float8, sum(agent_seconds)
FROM usage_usagecounter
WHERE hour >= %(begin)s AND hour < %(end)s
  AND (%(workspace_ids)s::uuid[] IS NULL OR workspace_id = ANY(%(workspace_ids)s))
GROUP BY workspace_id
"""

_process = uuid4()
_lock = threading.Lock()
_counts: dict[tuple[UUID, datetime], list[float]] = {}
_changed: set[tuple[UUID, datetime]] = set()


def add(
    workspace_id: UUID, *, size: int = 0, agent_runs: int = 0, agent_seconds: float = 0.0
) -> None:
    """Add to the counters in memory."""
    key = workspace_id, datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with _lock:
        totals_of_hour = _counts.setdefault(key, [0, 0, 0.0])
        totals_of_hour[0] += size
        totals_of_hour[1] += agent_runs
        totals_of_hour[2] += agent_seconds
        _changed.add(key)


def flush() -> None:
    """Write the counters changed since the last flush. Raises database errors."""
    with _lock:
        changed = {key: list(_counts[key]) for key in _changed}
        _changed.clear()
        cutoff = datetime.now(UTC) - timedelta(hours=2)
        for key in [key for key in _counts if key[1] < cutoff and key not in changed]:
            del _counts[key]
    if not changed:
        return
    columns = [list(column) for column in zip(*changed, strict=True)]
    sums = [list(column) for column in zip(*changed.values(), strict=True)]
    try:
        with connection.cursor() as cursor:
            cursor.execute(_SET, [_process, *columns, *sums])
    except BaseException:
        with _lock:
            _changed.update(changed)
        raise


def start() -> None:
    """Start flushing every two seconds, and at process exit."""
    PeriodicFlush("usage counters", flush).start()


def sum_counters(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> Figures:
    """Return the sums over all processes."""
    workspace_ids = None if workspaces is None else list(workspaces)
    with connection.cursor() as cursor:
        cursor.execute(_SUM, {"begin": begin, "end": end, "workspace_ids": workspace_ids})
        return {
            workspace_id: {"bytes": size, "agent_runs": runs, "agent_seconds": seconds}
            for workspace_id, size, runs, seconds in cursor
        }


def delete_old_counters(now: datetime) -> None:
    """Delete rows past their retention. Safe to repeat."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM usage_usagecounter WHERE hour < %s", [now - RETENTION])
