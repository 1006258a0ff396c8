"""The table, for everything that Django answers: DRF's views, plain ones and async ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.http import HttpRequest, HttpResponse

from apps.core.middleware import error_response
from apps.organizations.models import User
from apps.rate_limits.checks import check
from apps.rate_limits.counters import LimitReached

Handler = Callable[[HttpRequest], HttpResponse]
_COUNTED = "slipway.rate_limit"
"""Where an environment keeps the headers of a request that was counted and is begun again."""


class RateLimitMiddleware:
    """Counts each request once, before any body is parsed, and refuses those that are too many.

    It stands after the session's person is known and CORS headers are seen to, so that scripts of
    other origins can read a refusal, and before preflights are answered, so that those count.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        counted: Mapping[str, str] | None = request.META.get(_COUNTED)
        if counted is None:
            try:
                counted = _headers(request)
            except LimitReached as error:
                return _with(error.usage.headers(), error_response(request, error))
            request.META[_COUNTED] = counted
        return _with(counted, self.get_response(request))


def _with(headers: Mapping[str, str], response: HttpResponse) -> HttpResponse:
    for name, value in headers.items():
        response.headers[name] = value
    return response


def _headers(request: HttpRequest) -> Mapping[str, str]:
    usage = check(
        method=request.method or "GET",
        path=request.path_info,
        headers=request.headers,
        remote=request.META.get("REMOTE_ADDR", ""),
        user=lambda: _person(request),
    )
    return {} if usage is None else usage.headers()


def _person(request: HttpRequest) -> User | None:
    user = request.user
    return user if isinstance(user, User) and user.is_active else None
