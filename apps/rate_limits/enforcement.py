"""Rate limit checks of requests, and the middleware that applies them to Django views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse

from apps.core.http.middleware import error_response
from apps.core.observability import metrics
from apps.organizations.models import User
from apps.rate_limits import counters
from apps.rate_limits.counters import LimitReached, RequestCount
from apps.rate_limits.factors import factor_for
from apps.rate_limits.identity import Identity, address_identity, identify
from apps.rate_limits.row_matching import (
    CATCH_ALL,
    address_row,
    counted_path,
    find_workspace,
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
) -> RequestCount | None:
    """Count a platform API request on its row. Raises `LimitReached`.

    `path` is canonical, `headers` is case-insensitive, `remote` is the client address, `user`
    returns the session's user. Returns None for paths without limits. Fails open: None also if
    Redis or PostgreSQL is unavailable, because limits are not access control.
    """
    if not settings.RATE_LIMIT_FACTOR or not is_counted(path):
        return None
    normalized = counted_path(path)
    try:
        # A row by address needs no identity, so no key is looked up.
        if (row := address_row(method, normalized)) is not None:
            return consume(row, address_identity(remote))
        identity = identify(headers, remote, user, find_workspace(path))
        return consume(row_for(method, normalized, identity.kind), identity)
    except DatabaseError:
        metrics.limits.labels(CATCH_ALL.category, "unchecked").inc()
        return None


def check_anonymous(remote: str) -> RequestCount | None:
    """Count an unauthenticated request to an agent on the address's catch-all row."""
    if not settings.RATE_LIMIT_FACTOR:
        return None
    return consume(CATCH_ALL, address_identity(remote))


def check_deployment(name: str, value: str, limit: tuple[int, int]) -> RequestCount | None:
    """Count on a deployment's own limit, which is not in the table."""
    try:
        usage = counters.count_custom(name, value, limit)
    except redis.RedisError:
        metrics.limits.labels(name, "unchecked").inc()
        return None
    return _record_metrics(usage)


def consume(row: Row, identity: Identity) -> RequestCount | None:
    """Count on the row. Raises `LimitReached`; returns None if Redis is unavailable."""
    factor = factor_for(identity.organization_id, row.category)
    try:
        usage = counters.count(row, identity, factor)
    except redis.RedisError as error:
        metrics.limits.labels(row.category, "unchecked").inc()
        log.debug("Could not count on %s: %s", row.name, error)
        return None
    return _record_metrics(usage)


def _record_metrics(usage: RequestCount) -> RequestCount:
    metrics.limits.labels(usage.category, "refused" if usage.is_over else "allowed").inc()
    if usage.is_over:
        raise LimitReached(usage)
    return usage


Handler = Callable[[HttpRequest], HttpResponse]


class RateLimitMiddleware:
    """Counts each request once, before its body is parsed, and rejects those over the limit.

    It runs after session authentication. It runs inside the middleware that adds CORS headers, so
    that scripts of other origins can read a rejection, and outside the one that answers
    preflights, so that preflights are counted.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            headers = _limit_headers(request)
        except LimitReached as error:
            return _add_headers(error.usage.headers(), error_response(request, error))
        return _add_headers(headers, self.get_response(request))


def _add_headers(headers: Mapping[str, str], response: HttpResponse) -> HttpResponse:
    for name, value in headers.items():
        response.headers[name] = value
    return response


def _limit_headers(request: HttpRequest) -> Mapping[str, str]:
    """Count the request and return the headers with its limit."""
    usage = check(
        method=request.method or "GET",
        path=request.path_info,
        headers=request.headers,
        remote=request.META.get("REMOTE_ADDR", ""),
        user=lambda: _session_user(request),
    )
    return {} if usage is None else usage.headers()


def _session_user(request: HttpRequest) -> User | None:
    user = request.user
    return user if isinstance(user, User) and user.is_active else None
