"""The `/metrics` page and the end of impersonation."""

from __future__ import annotations

import ipaddress
from hmac import compare_digest

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST
from prometheus_client import CONTENT_TYPE_LATEST

from apps.core import errors
from apps.core.observability.metrics import render_metrics
from apps.operators import impersonation
from apps.operators.metrics import StatusCollector


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics in Prometheus' text format.

    Requires the metrics token, an operator's session or a loopback address. While the database is
    down, only counters are returned.
    """
    if not _is_allowed(request):
        raise errors.Unauthenticated("Send the metrics token: Authorization: Bearer <token>.")
    try:
        text = render_metrics(StatusCollector())
    except DatabaseError:
        text = render_metrics()
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


@require_POST
def end_impersonation(request: HttpRequest) -> HttpResponse:
    """End impersonation and return to the user's admin page; 404 for other sessions."""
    user = impersonation.end(request)
    if user is None:
        raise errors.NotFound
    return redirect("admin:organizations_user_change", user.pk)


def _is_allowed(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return compare_digest(token.strip().encode(), settings.METRICS_TOKEN.encode())
    if settings.METRICS_LOOPBACK and _is_loopback(request.META.get("REMOTE_ADDR", "")):
        return True
    user = request.user
    return user.is_authenticated and user.is_active and user.is_staff


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
