"""Health checks for operators and load balancers."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.core.json import dumps
from apps.core.observability import readiness


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while this process runs."""
    return HttpResponse(b'{"ok":true}', content_type="application/json")


def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when every component is ready, else 503 with the failures."""
    parts = readiness.check()
    ready = all(state == "ok" for state in parts.values())
    response = HttpResponse(
        dumps({"ready": ready, "parts": parts}),
        content_type="application/json",
        status=200 if ready else 503,
    )
    # Prevents Django from logging the 503 as an error.
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001
    return response
