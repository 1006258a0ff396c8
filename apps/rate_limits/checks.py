"""Rate limit checks of requests, shared by all entry points."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import redis
from django.conf import settings
from django.db import Error as DatabaseError

from apps.core.observability import metrics
from apps.organizations.models import User
from apps.rate_limits import counters
from apps.rate_limits.counters import LimitReached, Usage
from apps.rate_limits.factors import factor_for
from apps.rate_limits.identity import Identity, address_identity, identify
from apps.rate_limits.row_matching import (
    CATCH_ALL,
    address_row,
    counted_path,
    is_counted,
    row_for,
)
from apps.rate_limits.table import Row

log = logging.getLogger(__name__)


def check(
    *,
    method: str,
    path: str,
    headers: Mapping[str, str],
    remote: str,
    user: Callable[[], User | None],
) -> Usage | None:
    """Count a platform API request on its row. Raises `LimitReached`.

    `path` is canonical, `headers` is case-insensitive, `remote` is the client address, `user`
    returns the session's user. Returns None for paths without limits. Fails open: None also if
    Redis or PostgreSQL is unavailable, because limits are no access control.
    """
    if not settings.RATE_LIMIT_FACTOR or not is_counted(path):
        return None
    normalized = counted_path(path)
    try:
        # A row by address needs no identity, so no key is looked up.
        if (row := address_row(method, normalized)) is not None:
            return consume(row, address_identity(remote))
        identity = identify(headers, remote, user)
        return consume(row_for(method, normalized, identity.kind), identity)
    except DatabaseError:
        metrics.limits.labels(CATCH_ALL.category, "unchecked").inc()
        return None


def check_anonymous(remote: str) -> Usage | None:
    """Count an unauthenticated request to an agent on the address's catch-all row."""
    if not settings.RATE_LIMIT_FACTOR:
        return None
    return consume(CATCH_ALL, address_identity(remote))


def check_deployment(name: str, value: str, limit: tuple[int, int]) -> Usage | None:
    """Count on a deployment's own limit, which is not in the table."""
    try:
        usage = counters.count_custom(name, value, limit)
    except redis.RedisError:
        metrics.limits.labels(name, "unchecked").inc()
        return None
    return _record_metrics(usage)


def consume(row: Row, identity: Identity) -> Usage | None:
    """Count on the row. Raises `LimitReached`; returns None if Redis is unavailable."""
    factor = factor_for(identity.organization_id, row.category)
    try:
        usage = counters.count(row, identity, factor)
    except redis.RedisError as error:
        metrics.limits.labels(row.category, "unchecked").inc()
        log.debug("Could not count on %s: %s", row.name, error)
        return None
    return _record_metrics(usage)


def _record_metrics(usage: Usage) -> Usage:
    metrics.limits.labels(usage.category, "refused" if usage.is_over else "allowed").inc()
    if usage.is_over:
        raise LimitReached(usage)
    return usage
