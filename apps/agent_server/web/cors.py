"""Browsers of any origin may use an agent: its guard is a key, which no browser adds by itself.

The session cookie of our own pages is of no use elsewhere: credentials do not cross origins.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "x-pagination-total, x-pagination-next, content-location",
}
ASGI_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"


def is_preflight(request: HttpRequest) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def preflight(request: HttpRequest) -> HttpResponse:
    """The answer to a browser that asks before it asks: everything it named is allowed."""
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
    if asked := request.headers.get("Access-Control-Request-Headers"):
        response.headers["Access-Control-Allow-Headers"] = asked
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response
