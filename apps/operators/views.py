"""For operators' machines: what was counted and how things stand."""

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
from apps.core.metrics import exposition
from apps.operators import impersonation
from apps.operators.metrics_collector import StatusCollector


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text; for the operator's token, an operator's session, or this machine itself.

    Keys of tenants open nothing here. While the database is away, what was counted is told.
    """
    if not _may_see(request):
        raise errors.Unauthenticated("Send the operator's token: Authorization: Bearer <token>.")
    try:
        text = exposition(StatusCollector())
    except DatabaseError:
        text = exposition()
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


@require_POST
def end_impersonation(request: HttpRequest) -> HttpResponse:
    """Back to oneself, at the page of the person one was; for others there is nothing here."""
    person = impersonation.end(request)
    if person is None:
        raise errors.NotFound
    return redirect("admin:organizations_user_change", person.pk)


def _may_see(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return compare_digest(token.strip().encode(), settings.METRICS_TOKEN.encode())
    if settings.METRICS_LOOPBACK and _is_here(request.META.get("REMOTE_ADDR", "")):
        return True
    user = request.user
    return user.is_authenticated and user.is_active and user.is_staff


def _is_here(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
