"""Request ids, canonical paths, CORS, compression, and the error shape outside DRF."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from psycopg.errors import UntranslatableCharacter

from apps.core import errors
from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.core.observability import metrics
from apps.core.request_context import RequestContext, enter, leave

log = logging.getLogger(__name__)
Handler = Callable[[HttpRequest], HttpResponse]
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}")
# The database driver refuses such text before it sends it, and PostgreSQL the escape in JSON; few
# fields have their own check.
_NUL_REFUSED = "cannot contain NUL (0x00) bytes"
_PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"

_CANONICAL_PREFIXES = (
    ("/api/v1/v1/", "/v1/"),
    ("/api/v1/v2/", "/v2/"),
    ("/api/v1/platform/", "/v1/platform/"),
    ("/api/v1/", "/"),
    ("/api-host/", "/"),
    ("/api/v2/", "/v2/"),
    ("/api/", "/"),
    ("/platform/", "/v1/platform/"),
)
# Paths that are not rewritten: the admin needs trailing slashes, agents serve custom routes.
_UNCHANGED_PREFIXES = ("/admin/", "/agents/", "/static/")


def canonical(path: str) -> str:
    """Return the path in the route table for a requested path.

    SDKs build `/runs`, `/api/v1/runs`, `/api/runs`, `/v1/platform/...`, `/api/v1/platform/...`,
    `/platform/...` (a base that ends in `/v1`), `/api/v2/...` and `/api-host/v2/...`, with and
    without a trailing slash. All map to one path before routing, so no prefix has its own rules.
    """
    if path.startswith(_UNCHANGED_PREFIXES):
        return path
    for prefix, replacement in _CANONICAL_PREFIXES:
        if path.startswith(prefix):
            path = replacement + path[len(prefix) :]
            break
    return path.rstrip("/") or "/"


class RequestIdMiddleware:
    """Sets `X-Request-ID` on each response and on each log line of the request."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        header = request.headers.get("X-Request-ID", "")
        request_id = header if _REQUEST_ID.fullmatch(header) else str(uuid7())
        enter(RequestContext(request.META.get("REMOTE_ADDR") or None, request_id, request=request))
        started = time.perf_counter()
        try:
            response = self.get_response(request)
        finally:
            leave()
        route = request.resolver_match.route if request.resolver_match else metrics.NO_ROUTE
        metrics.observe_request(
            request.method or "", route, response.status_code, time.perf_counter() - started
        )
        response.headers["X-Request-ID"] = request_id
        response.headers["Permissions-Policy"] = _PERMISSIONS_POLICY
        return response


class CanonicalPathMiddleware:
    """Rewrites `path_info` to the canonical path; `request.path` keeps the client's."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.path_info = canonical(request.path_info)
        return self.get_response(request)


class HostMiddleware(CommonMiddleware):
    """Answers 400 for a host that is not in `ALLOWED_HOSTS`, and separates the public hosts.

    If the APIs have a host of their own, it serves no pages: it redirects to them, because clients
    derive their addresses from that of the API. A beacon's own host serves only the beacon.

    Probes and scrapers call a process by its address, and no link follows from what they get.
    """

    _PROBE_PATHS = frozenset(("/healthz", "/readyz", "/metrics"))

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        if request.path_info in self._PROBE_PATHS:
            return None
        response = super().process_request(request)
        return response or _route_by_host(request)


_PAGE_PREFIXES = (
    *("/o/", "/account", "/sign-", "/organizations", "/end-impersonation", "/invitations/"),
    *("/admin", "/prompts/", "/hub/", "/context/"),
)
_SHARED_PAGE = re.compile(r"/public/[^/]+/[rd]")
_BEACON_PATH = re.compile(r"/v1/beacon(/.*)?|/(.+/)?metadata/submit|/ok|/info(/health)?")


def _route_by_host(request: HttpRequest) -> HttpResponsePermanentRedirect | None:
    """Return a redirect to the host of the pages, or None to serve the request.

    Raises `Http404` for a path that the host does not serve.
    """
    host = request.get_host().lower()
    ui, api, beacon = (
        urlsplit(url).netloc.lower()
        for url in (settings.BASE_URL, settings.API_BASE_URL, settings.BEACON_BASE_URL)
    )
    path = request.path_info
    if host == ui:
        return None
    if host == api:
        is_page = path == "/" or path.startswith(_PAGE_PREFIXES) or _SHARED_PAGE.fullmatch(path)
        if not is_page:
            return None
        if request.method in {"GET", "HEAD"}:
            return HttpResponsePermanentRedirect(f"{settings.BASE_URL}{request.get_full_path()}")
        raise Http404
    if host == beacon and _BEACON_PATH.fullmatch(path) is None:
        raise Http404
    return None


class PageGZipMiddleware(GZipMiddleware):
    """Compresses HTML pages; API responses are not worth the CPU."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            return response
        return super().process_response(request, response)


class ErrorMiddleware:
    """Renders an `AppError` of a page view, and Django's own errors, in the one error shape."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        error = as_app_error(exception)
        return None if error is None else error_response(request, error)


def as_app_error(exception: BaseException) -> errors.AppError | None:
    """Convert the exception to the error that the caller sees; None for a bug."""
    match exception:
        case errors.AppError():
            return exception
        case Http404():
            return errors.NotFound()
        case PermissionDenied():
            return errors.Forbidden()
        case RequestDataTooBig():
            return errors.TooLarge()
        case SuspiciousOperation():
            return errors.BadRequest()
        case DataError() if _NUL_REFUSED in str(exception) or isinstance(
            exception.__cause__, UntranslatableCharacter
        ):
            return errors.BadRequest("The request contains a NUL character.")
    return None


def error_json(path: str, error: errors.AppError) -> dict[str, Any]:
    """Return the error body; clients of v2 and platform routes read `error` for the message."""
    has_error_field = path.startswith(("/v2/", "/v1/platform/"))
    return ({"error": error.detail} if has_error_field else {}) | error.as_json()


def error_headers(error: errors.AppError) -> dict[str, str]:
    """Return the error's headers; `x-should-retry` stops clients that retry a 409."""
    retry = {"x-should-retry": "false"} if error.status == errors.Conflict.status else {}
    return {**retry, **error.headers}


def error_response(request: HttpRequest, error: errors.AppError) -> HttpResponse:
    """Render the error as a page for browsers and as JSON otherwise."""
    if "text/html" in request.headers.get("Accept", ""):
        return render(request, "error.html", {"error": error}, status=error.status)
    return HttpResponse(
        dumps(error_json(request.path_info, error)),
        content_type="application/json",
        status=error.status,
        headers=error_headers(error),
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, as_app_error(exception) or errors.BadRequest())


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, errors.Forbidden())


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_response(request, errors.NotFound())


def server_error(request: HttpRequest) -> HttpResponse:
    error = errors.AppError()
    if "text/html" in request.headers.get("Accept", ""):
        return render(request, "error.html", {"error": error}, status=500)
    return HttpResponse(dumps(error.as_json()), content_type="application/json", status=500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    error = errors.Forbidden("The form has expired. Reload the page and submit it again.")
    return error_response(request, error)


_CORS_EXCLUDED_PREFIXES = ("/agents/", "/admin/", "/static/", "/feedback/tokens/")
"""Agents configure CORS themselves, and feedback tokens are valid from every page."""
_CORS_METHODS = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_CORS_HEADERS = (
    "x-api-key, x-tenant-id, x-organization-id, authorization, content-type, content-encoding,"
    " x-pre-compressed-size, x-post-compressed-size, langsmith-project, x-user-id, accept"
)
_CORS_EXPOSED_HEADERS = (
    "x-request-id, x-pagination-total, retry-after, content-location, x-ratelimit-limit,"
    " x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-category"
)
_CORS_MAX_AGE_SECONDS = "86400"


class CorsMiddleware:
    """Lets scripts of other origins call the APIs with an API key, never with cookies.

    The script sends the key itself, so any origin may be allowed: with `*`, browsers withhold the
    response from a script whose request carried cookies.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        origin = request.headers.get("Origin")
        if origin is None or request.path_info.startswith(_CORS_EXCLUDED_PREFIXES):
            return self.get_response(request)
        allowed = allowed_origin(origin)
        response = self.get_response(request)
        if allowed is None:
            return response
        response["Access-Control-Allow-Origin"] = allowed
        response["Access-Control-Expose-Headers"] = _CORS_EXPOSED_HEADERS
        if allowed != "*":
            response["Vary"] = f"{response['Vary']}, Origin" if "Vary" in response else "Origin"
        if _is_preflight(request):
            response["Access-Control-Allow-Methods"] = _CORS_METHODS
            response["Access-Control-Allow-Headers"] = _CORS_HEADERS
            response["Access-Control-Max-Age"] = _CORS_MAX_AGE_SECONDS
        return response


class PreflightMiddleware:
    """Answers OPTIONS on any path, after the rate limit middleware has counted it.

    The response is the same for known and unknown paths and needs no credentials, so it neither
    reveals a route nor depends on a row.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_excluded = request.path_info.startswith(_CORS_EXCLUDED_PREFIXES)
        if request.method == "OPTIONS" and not is_excluded:
            return HttpResponse(status=204, headers={"Allow": _CORS_METHODS})
        return self.get_response(request)


def _is_preflight(request: HttpRequest) -> bool:
    has_headers = "Origin" in request.headers and "Access-Control-Request-Method" in request.headers
    return request.method == "OPTIONS" and has_headers


def allowed_origin(origin: str) -> str | None:
    """Return the value of `Access-Control-Allow-Origin`; None if the origin is not allowed."""
    if "*" in settings.CORS_ORIGINS:
        return "*"
    return origin if origin in settings.CORS_ORIGINS else None
