"""Default CORS headers of agents: any origin, without credentials.

Requests need a key, which a browser does not add by itself; session cookies are not allowed.
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
    """The response to a preflight; it allows every requested header."""
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
    if requested := request.headers.get("Access-Control-Request-Headers"):
        response.headers["Access-Control-Allow-Headers"] = requested
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    return response
