"""Figures that no row tells: counted in memory, and written down every two seconds.

A process sets rows of its own, with all that it has counted in the hour, so that writing again
changes nothing and no two processes wait for each other. One that is killed loses two seconds.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from django.db import Error as DatabaseError
from django.db import connection

from apps.core.connections import close_dead
from apps.usage.usage_sources import Figures

log = logging.getLogger(__name__)
PERIOD_SECONDS = 2.0
KEPT = timedelta(days=3)
"""What is older stands in the days; nothing is set for it any more."""

_SET = """
INSERT INTO usage_usagecounter (workspace_id, hour, process, bytes, agent_runs, agent_seconds)
SELECT said.workspace_id, said.hour, %s, said.bytes, said.runs, said.seconds
FROM unnest(%s::uuid[], %s::timestamptz[], %s::int8[], %s::int8[], %s::float8[])
     AS said(workspace_id, hour, bytes, runs, seconds)
ON CONFLICT (workspace_id, hour, process) DO UPDATE
SET bytes = excluded.bytes, agent_runs = excluded.agent_runs,
    agent_seconds = excluded.agent_seconds
"""
_SUM = """
SELECT workspace_id, sum(bytes)::float8, sum(agent_runs)::float8, sum(agent_seconds)
FROM usage_usagecounter
WHERE hour >= %(begin)s AND hour < %(end)s
  AND (%(some)s::uuid[] IS NULL OR workspace_id = ANY(%(some)s))
GROUP BY workspace_id
"""

_process = uuid4()
_lock = threading.Lock()
_counts: dict[tuple[UUID, datetime], list[float]] = {}
_changed: set[tuple[UUID, datetime]] = set()


def add(
    workspace_id: UUID, *, size: int = 0, agent_runs: int = 0, agent_seconds: float = 0.0
) -> None:
    """Count; costs a look at a dictionary."""
    key = workspace_id, datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with _lock:
        counted = _counts.setdefault(key, [0, 0, 0.0])
        counted[0] += size
        counted[1] += agent_runs
        counted[2] += agent_seconds
        _changed.add(key)


def flush() -> None:
    """Write down what was counted since the last time. Raises what the database does."""
    with _lock:
        changed = {key: list(_counts[key]) for key in _changed}
        _changed.clear()
        past = datetime.now(UTC) - timedelta(hours=2)
        for key in [key for key in _counts if key[1] < past and key not in changed]:
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
    """Write down every two seconds from now on, and when the process ends."""
    threading.Thread(target=_go_on, name="meter", daemon=True).start()
    atexit.register(_flush_at_last)


def _go_on() -> None:
    pause = threading.Event()
    while not pause.wait(PERIOD_SECONDS):
        try:
            close_dead()
            flush()
        except DatabaseError:
            log.warning("what was totals could not be written down; it is kept in memory")


def _flush_at_last() -> None:
    try:
        flush()
    except Exception:  # noqa: BLE001  (the process ends, perhaps because the database has)
        log.warning("the last that was totals is lost")


def totals(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> Figures:
    """What all processes have written down."""
    some = None if workspaces is None else list(workspaces)
    with connection.cursor() as cursor:
        cursor.execute(_SUM, {"begin": begin, "end": end, "some": some})
        return {
            workspace_id: {"bytes": size, "agent_runs": runs, "agent_seconds": seconds}
            for workspace_id, size, runs, seconds in cursor
        }


def delete_old_counters(now: datetime) -> None:
    """Remove rows whose days are over. Safe to repeat."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM usage_usagecounter WHERE hour < %s", [now - KEPT])
