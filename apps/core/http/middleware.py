"""Request ids, canonical paths, compression, and the error shape outside DRF."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render

from apps.core import errors
from apps.core.http.paths import canonical
from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.core.observability import metrics
from apps.core.request_context import RequestContext, enter, leave

log = logging.getLogger(__name__)
Handler = Callable[[HttpRequest], HttpResponse]
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}")
_PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


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
    return None


def error_json(path: str, error: errors.AppError) -> dict[str, Any]:
    """Return the error body; clients of v2 and platform routes read `error` for the message."""
    is_newer = path.startswith(("/v2/", "/v1/platform/"))
    return ({"error": error.detail} if is_newer else {}) | error.as_json()


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
