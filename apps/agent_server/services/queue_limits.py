"""Limits on the pending agent runs of an organization and of each of its deployments.

A process counts an organization's pending runs at most every second, on an index of pending runs
only, and adds the runs that it creates meanwhile. It counts again once it has created an eighth of
what was left: far from a limit a request costs no query, and close to it each request counts.
Several processes together can exceed a limit by a few runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from uuid import UUID

from django.conf import settings

from apps.agent_server import errors, prepared_sql
from apps.deployments.routes import Route

MAX_AGE_SECONDS = 1.0
MIN_AGE_SECONDS = 0.1
"""After a count that refused a run, further runs are refused without a count for this time."""
MARGIN_PARTS = 8
"""A process creates at most this part of the remaining runs before it counts again."""
MAX_ORGANIZATIONS = 10_000

# The index `agent_run_queued` holds pending runs only.
_COUNT = """
SELECT r.deployment_id, count(*)
FROM organizations_workspace w
JOIN agent_server_agentrun r ON r.workspace_id = w.id AND r.status = 'pending'
WHERE w.organization_id = %s
GROUP BY r.deployment_id
"""

_lock = threading.Lock()
"""Never held during a query: requests of one event loop share a thread."""


class _OrganizationQueue:
    """This process's count of an organization's pending runs."""

    def __init__(self, organization_id: UUID) -> None:
        self._organization_id = organization_id
        self._counted: Mapping[UUID, int] = {}
        self._created: dict[UUID, int] = {}
        self._open: dict[UUID, int] = {}
        """Created runs whose transaction may not have ended."""
        self._created_at_count: Mapping[UUID, int] = {}
        """Created runs that the count included."""
        self._counted_at = float("-inf")
        self._refused_at = float("-inf")

    def reserve(self, deployment_id: UUID, count: int) -> None:
        """Add `count` runs, or raise `QueueFull`."""
        with _lock:
            is_decided = self._is_recent(count) and self._find_full(deployment_id, count) is None
            if is_decided:
                self._add(deployment_id, count)
                return
            # Only a refusal counts: after a count that accepted runs, they may have started since.
            is_refusal_recent = time.monotonic() - self._refused_at < MIN_AGE_SECONDS
            error = self._find_full(deployment_id, count)
        if error is not None and is_refusal_recent:
            raise error
        self._count()
        with _lock:
            error = self._find_full(deployment_id, count)
            if error is not None:
                self._refused_at = time.monotonic()
                raise error
            self._add(deployment_id, count)

    def finish(self, deployment_id: UUID, count: int, *, has_failed: bool) -> None:
        """The transaction of reserved runs has ended."""
        with _lock:
            self._open[deployment_id] -= count
            if has_failed:
                self._created[deployment_id] -= count

    def _add(self, deployment_id: UUID, count: int) -> None:
        self._created[deployment_id] = self._created.get(deployment_id, 0) + count
        self._open[deployment_id] = self._open.get(deployment_id, 0) + count

    def _count(self) -> None:
        with _lock:
            began_at = time.monotonic()
            created = {key: n - self._open.get(key, 0) for key, n in self._created.items()}
        counted = count_pending(self._organization_id)
        with _lock:
            if began_at >= self._counted_at:
                self._counted, self._counted_at = counted, began_at
                self._created_at_count = created

    def _is_recent(self, count: int) -> bool:
        if time.monotonic() - self._counted_at > MAX_AGE_SECONDS:
            return False
        remaining = [settings.MAX_QUEUED_RUNS - sum(self._counted.values())]
        limit = settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT
        remaining.append(limit - max(self._counted.values(), default=0))
        created = sum(self._created.values()) - sum(self._created_at_count.values())
        return (created + count) * MARGIN_PARTS <= min(remaining)

    def _find_full(self, deployment_id: UUID, count: int) -> errors.QueueFull | None:
        before = self._created_at_count
        created = sum(self._created.values()) - sum(before.values())
        if sum(self._counted.values()) + created + count > settings.MAX_QUEUED_RUNS:
            return errors.QueueFull("organization", settings.MAX_QUEUED_RUNS)
        own_created = self._created.get(deployment_id, 0) - before.get(deployment_id, 0)
        limit = settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT
        if self._counted.get(deployment_id, 0) + own_created + count > limit:
            return errors.QueueFull("deployment", limit)
        return None


_queues: dict[UUID, _OrganizationQueue] = {}


@contextlib.contextmanager
def reserve(route: Route, count: int = 1) -> Iterator[None]:
    """Hold places for new runs until their transaction ends. Raises `QueueFull`."""
    with _lock:
        queue = _queues.get(route.organization_id)
        if queue is None:
            if len(_queues) >= MAX_ORGANIZATIONS:
                _queues.clear()
            queue = _queues[route.organization_id] = _OrganizationQueue(route.organization_id)
    queue.reserve(route.deployment_id, count)
    has_failed = True
    try:
        yield
        has_failed = False
    finally:
        queue.finish(route.deployment_id, count, has_failed=has_failed)


def clear_cache() -> None:
    """Forget the counts of this process."""
    with _lock:
        _queues.clear()


def count_pending(organization_id: UUID) -> dict[UUID, int]:
    """Return the organization's pending runs by deployment."""
    return dict(prepared_sql.fetch_rows(_COUNT, [organization_id]))
