"""Browsers of any origin may use an agent: its guard is a key, which no browser adds by itself.

The session cookie of our own pages is of no use elsewhere: credentials do not cross origins.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

PREFIX = "/agents/"
HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "x-pagination-total, x-pagination-next, content-location",
}
ASGI_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"


class AgentCorsMiddleware:
    """Answers preflights under `/agents/` and opens every other answer there."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return _preflight(request)
        response = self.get_response(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response


def _preflight(request: HttpRequest) -> HttpResponse:
    asked = request.headers.get("Access-Control-Request-Headers", "")
    response = HttpResponse(
        "OK",
        content_type="text/plain; charset=utf-8",
        headers={
            **HEADERS,
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Max-Age": "600",
            "Vary": "Access-Control-Request-Headers",
        },
    )
    if asked:
        response.headers["Access-Control-Allow-Headers"] = asked
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response
