"""The one question that every surface asks before it does anything: may this request go on?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import redis
from django.conf import settings
from django.db import Error as DatabaseError

from apps.core import metrics
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
    """Count a request to the platform API on its row; `LimitReached` when that is used up.

    `path` is canonical, `headers` find names without regard to case, `remote` is the client's
    address, `user` the person of the session. None for what is outside the table, and for what
    nobody could count: the table protects the service, it is not what keeps strangers out.
    """
    if not settings.RATE_LIMIT_FACTOR or not is_counted(path):
        return None
    plain = counted_path(path)
    try:
        # For a row by address it makes no difference whose the key is, so none is looked up.
        if (row := address_row(method, plain)) is not None:
            return consume(row, address_identity(remote))
        who = identify(headers, remote, user)
        return consume(row_for(method, plain, who.kind), who)
    except DatabaseError:
        metrics.limits.labels(CATCH_ALL.category, "unchecked").inc()
        return None


def check_anonymous(remote: str) -> Usage | None:
    """Count what did not authenticate elsewhere, with an agent, on the address's catch-all row."""
    if not settings.RATE_LIMIT_FACTOR:
        return None
    return consume(CATCH_ALL, address_identity(remote))


def check_deployment(name: str, value: str, limit: tuple[int, int]) -> Usage | None:
    """Count on a limit that is no row of the table, such as a deployment's own."""
    try:
        usage = counters.count_custom(name, value, limit)
    except redis.RedisError:
        metrics.limits.labels(name, "unchecked").inc()
        return None
    return _noted(usage)


def consume(row: Row, who: Identity) -> Usage | None:
    """Count on that row; `LimitReached` when it is used up, None when Redis is away."""
    factor = factor_for(who.organization_id, row.category)
    try:
        usage = counters.count(row, who, factor)
    except redis.RedisError as error:
        metrics.limits.labels(row.category, "unchecked").inc()
        log.debug("Not counted on %s: %s", row.name, error)
        return None
    return _noted(usage)


def _noted(usage: Usage) -> Usage:
    metrics.limits.labels(usage.category, "refused" if usage.is_over else "allowed").inc()
    if usage.is_over:
        raise LimitReached(usage)
    return usage
