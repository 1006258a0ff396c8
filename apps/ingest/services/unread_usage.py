"""Counts of token attributes that no vocabulary has, in memory and flushed every two seconds.

A library that adds a name sends it with every run; ingest must not wait for a row that all of its
requests change. A killed process loses up to two seconds of counts.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.core.periodic_flush import PeriodicFlush

REASON_PREFIX = "unread_usage:"
"""Begins the reason of the rows of `RejectionCount` that count these names."""
MAX_NAMES = 50
"""Names per workspace and flush; others are counted as one."""
OTHER_NAMES = "other"
_MAX_NAME_LENGTH = 100 - len(REASON_PREFIX)
_NOT_PRINTABLE = re.compile(r"[^\w.:/-]", re.ASCII)

_ADD = """
INSERT INTO ingest_rejectioncount (created_at, workspace_id, project_id, hour, reason, count)
SELECT now(), added.workspace_id, added.project_id, date_trunc('hour', now(), 'UTC'),
    added.reason, added.count
FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::int8[])
    AS added(workspace_id, project_id, reason, count)
JOIN organizations_workspace w ON w.id = added.workspace_id
ORDER BY 2, 3, 5
ON CONFLICT (workspace_id, hour, project_id, reason)
DO UPDATE SET count = ingest_rejectioncount.count + excluded.count
"""

_lock = threading.Lock()
_counts: Counter[tuple[UUID, UUID, str]] = Counter()
_names: dict[UUID, set[str]] = {}


def add(workspace_id: UUID, names: Iterable[tuple[UUID, str]]) -> None:
    """Count runs by project and name."""
    with _lock:
        known = _names.setdefault(workspace_id, set())
        for project_id, raw_name in names:
            name = _NOT_PRINTABLE.sub("?", raw_name[:_MAX_NAME_LENGTH])
            if name not in known and len(known) >= MAX_NAMES:
                name = OTHER_NAMES
            known.add(name)
            _counts[workspace_id, project_id, name] += 1


def flush() -> None:
    """Write the counts since the last flush. Raises database errors."""
    with _lock:
        counts = Counter(_counts)
        _counts.clear()
        _names.clear()
    if not counts:
        return
    workspaces, projects, names = (list(column) for column in zip(*counts, strict=True))
    params: list[Any] = [workspaces, projects, [REASON_PREFIX + name for name in names]]
    try:
        with raw_cursor() as cursor:
            cursor.execute(_ADD, [*params, list(counts.values())])
    except BaseException:
        with _lock:
            _counts.update(counts)
        raise


def start() -> None:
    """Start flushing every two seconds, and at process exit."""
    PeriodicFlush("unread usage counts", flush).start()
