"""For operators and load balancers: is it alive, is it ready."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.core import readiness
from apps.core.json import dumps


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return HttpResponse(b'{"ok":true}', content_type="application/json")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when everything that should run does; 503 with what is missing."""
    parts = readiness.check()
    ready = all(state == "ok" for state in parts.values())
    response = HttpResponse(
        dumps({"ready": ready, "parts": parts}),
        content_type="application/json",
        status=200 if ready else 503,
    )
    # Django logs a 5xx as an error; here it is an answer.
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001
    return response
