"""Rate limits of all Django views."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.http import HttpRequest, HttpResponse

from apps.core.http.middleware import error_response
from apps.organizations.models import User
from apps.rate_limits.checks import check
from apps.rate_limits.counters import LimitReached

Handler = Callable[[HttpRequest], HttpResponse]


class RateLimitMiddleware:
    """Counts each request once, before its body is parsed, and rejects those over the limit.

    It runs after session authentication, and between adding CORS headers, so that scripts of other
    origins can read a rejection, and answering preflights, so that those count.
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
