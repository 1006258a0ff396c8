"""Counts of pulls and views, in memory and flushed to PostgreSQL every two seconds.

A pull must not wait for a write, and many pulls of one commit must not wait for each other. A
killed process loses up to two seconds of counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from apps.core.periodic_flush import PeriodicFlush

# In the order of all other writers: the repository before its commits, and repositories by id.
_LOCK_REPOSITORIES = """
SELECT 1 FROM prompts_repository
WHERE id IN (SELECT repository_id FROM prompts_commit WHERE id = ANY(%s::uuid[]))
ORDER BY id FOR NO KEY UPDATE
"""
_ADD_TO_COMMITS = """
UPDATE prompts_commit c
SET num_downloads = c.num_downloads + counted.downloads, num_views = c.num_views + counted.views
FROM unnest(%s::uuid[], %s::int8[], %s::int8[]) AS counted(id, downloads, views)
WHERE c.id = counted.id
"""
_ADD_TO_REPOSITORIES = """
UPDATE prompts_repository r
SET num_downloads = r.num_downloads + summed.downloads, num_views = r.num_views + summed.views
FROM (
    SELECT c.repository_id, sum(counted.downloads) AS downloads, sum(counted.views) AS views
    FROM unnest(%s::uuid[], %s::int8[], %s::int8[]) AS counted(id, downloads, views)
    JOIN prompts_commit c ON c.id = counted.id
    GROUP BY c.repository_id
) summed
WHERE r.id = summed.repository_id
"""

_lock = threading.Lock()
_downloads: Counter[UUID] = Counter()
_views: Counter[UUID] = Counter()


def add(commit_id: UUID, *, is_view: bool = False) -> None:
    """Count a download by a client, or a view on a page."""
    with _lock:
        (_views if is_view else _downloads)[commit_id] += 1


def flush() -> None:
    """Write the counts since the last flush. Raises database errors."""
    with _lock:
        downloads, views = Counter(_downloads), Counter(_views)
        _downloads.clear()
        _views.clear()
    ids = sorted({*downloads, *views})
    if not ids:
        return
    params: list[Any] = [ids, [downloads[id_] for id_ in ids], [views[id_] for id_ in ids]]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_LOCK_REPOSITORIES, params[:1])
            cursor.execute(_ADD_TO_COMMITS, params)
            cursor.execute(_ADD_TO_REPOSITORIES, params)
    except BaseException:
        with _lock:
            _downloads.update(downloads)
            _views.update(views)
        raise


def start() -> None:
    """Start flushing every two seconds, and at process exit."""
    PeriodicFlush("pull counts", flush).start()
