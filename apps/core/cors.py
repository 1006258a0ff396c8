"""Scripts of other origins may call the APIs: with a key they hold, never with a visitor's cookie.

A key is sent by the script itself, so any origin may be let in: an answer to `*` is one that a
browser gives to no script whose request carried cookies.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_NOT_OURS = ("/agents/", "/admin/", "/static/", "/feedback/tokens/")
"""Agents say themselves who may call them, and a feedback's token is for every page."""
_METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_HEADERS = (
    "x-api-key, x-tenant-id, x-organization-id, authorization, content-type, content-encoding,"
    " x-pre-compressed-size, x-post-compressed-size, langsmith-project, x-user-id, accept"
)
_SHOWN = (
    "x-request-id, x-pagination-total, retry-after, content-location, x-ratelimit-limit,"
    " x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-category"
)
_REMEMBERED_SECONDS = "86400"


class CorsMiddleware:
    """Tells browsers which origins may read an answer, and what a preflight asks."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        origin = request.headers.get("Origin")
        if origin is None or request.path_info.startswith(_NOT_OURS):
            return self.get_response(request)
        allowed = allowed_origin(origin)
        response = self.get_response(request)
        if allowed is None:
            return response
        response["Access-Control-Allow-Origin"] = allowed
        response["Access-Control-Expose-Headers"] = _SHOWN
        if allowed != "*":
            response["Vary"] = f"{response['Vary']}, Origin" if "Vary" in response else "Origin"
        if _is_preflight(request):
            response["Access-Control-Allow-Methods"] = _METHODS
            response["Access-Control-Allow-Headers"] = _HEADERS
            response["Access-Control-Max-Age"] = _REMEMBERED_SECONDS
        return response


class PreflightMiddleware:
    """Answers preflights; a middleware of its own, so that they are counted before that."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _is_preflight(request) and not request.path_info.startswith(_NOT_OURS):
            return HttpResponse(status=204)
        return self.get_response(request)


def _is_preflight(request: HttpRequest) -> bool:
    asks = "Origin" in request.headers and "Access-Control-Request-Method" in request.headers
    return request.method == "OPTIONS" and asks


def allowed_origin(origin: str) -> str | None:
    """What to answer this origin; None when it may not read."""
    if "*" in settings.CORS_ORIGINS:
        return "*"
    return origin if origin in settings.CORS_ORIGINS else None
