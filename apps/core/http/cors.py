"""CORS: scripts of other origins may call the APIs with an API key, never with cookies.

The script sends the key itself, so any origin may be allowed: with `*`, browsers withhold the
response from a script whose request carried cookies.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_EXCLUDED_PREFIXES = ("/agents/", "/admin/", "/static/", "/feedback/tokens/")
"""Agents configure CORS themselves, and feedback tokens are valid from every page."""
_METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_HEADERS = (
    "x-api-key, x-tenant-id, x-organization-id, authorization, content-type, content-encoding,"
    " x-pre-compressed-size, x-post-compressed-size, langsmith-project, x-user-id, accept"
)
_EXPOSED_HEADERS = (
    "x-request-id, x-pagination-total, retry-after, content-location, x-ratelimit-limit,"
    " x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-category"
)
_MAX_AGE_SECONDS = "86400"


class CorsMiddleware:
    """Adds the CORS headers to responses."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        origin = request.headers.get("Origin")
        if origin is None or request.path_info.startswith(_EXCLUDED_PREFIXES):
            return self.get_response(request)
        allowed = allowed_origin(origin)
        response = self.get_response(request)
        if allowed is None:
            return response
        response["Access-Control-Allow-Origin"] = allowed
        response["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
        if allowed != "*":
            response["Vary"] = f"{response['Vary']}, Origin" if "Vary" in response else "Origin"
        if _is_preflight(request):
            response["Access-Control-Allow-Methods"] = _METHODS
            response["Access-Control-Allow-Headers"] = _HEADERS
            response["Access-Control-Max-Age"] = _MAX_AGE_SECONDS
        return response


class PreflightMiddleware:
    """Answers preflight requests, after the rate limit middleware has counted them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _is_preflight(request) and not request.path_info.startswith(_EXCLUDED_PREFIXES):
            return HttpResponse(status=204)
        return self.get_response(request)


def _is_preflight(request: HttpRequest) -> bool:
    has_headers = "Origin" in request.headers and "Access-Control-Request-Method" in request.headers
    return request.method == "OPTIONS" and has_headers


def allowed_origin(origin: str) -> str | None:
    """Return the value of `Access-Control-Allow-Origin`; None if the origin is not allowed."""
    if "*" in settings.CORS_ORIGINS:
        return "*"
    return origin if origin in settings.CORS_ORIGINS else None
