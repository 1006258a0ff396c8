"""CORS headers of agents: the defaults, and the rules of a deployment, which replace them.

By default any origin is allowed, without credentials. Requests need a key, which a browser does not
add by itself; session cookies are not allowed.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse

from apps.core.linear_regex import compile_pattern
from apps.deployments.langgraph_json.sections import Cors

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


Header = tuple[bytes, bytes]
_ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_SAFE_HEADERS = ("Accept", "Accept-Language", "Content-Language", "Content-Type")
_MAX_ORIGIN_LENGTH = 300


def response_headers(cors: Cors, origin: str | None) -> list[Header]:
    """The headers of a response to a browser of that origin."""
    if origin is None:
        return []
    headers = _origin_headers(cors, origin)
    if headers and cors.expose_headers:
        headers.append(("Access-Control-Expose-Headers", ", ".join(cors.expose_headers)))
    return _encode_headers(headers)


def preflight_response(
    cors: Cors, origin: str, method: str, requested: str | None
) -> tuple[int, bytes, list[Header]]:
    """The status, body and headers of a response to a preflight."""
    headers = _origin_headers(cors, origin)
    methods = _ALL_METHODS if "*" in cors.allow_methods else tuple(cors.allow_methods)
    allowed = sorted({*_SAFE_HEADERS, *cors.allow_headers})
    disallowed = [] if headers else ["origin"]
    if method not in methods:
        disallowed.append("method")
    if requested and "*" not in cors.allow_headers:
        allowed_names = {name.lower() for name in allowed}
        if any(name.strip().lower() not in allowed_names for name in requested.split(",")):
            disallowed.append("headers")
    headers += [
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Max-Age", str(cors.max_age)),
        ("Vary", "Origin, Access-Control-Request-Headers"),
    ]
    allowed_headers = requested if requested and "*" in cors.allow_headers else ", ".join(allowed)
    headers.append(("Access-Control-Allow-Headers", allowed_headers))
    if disallowed:
        return 400, f"Disallowed CORS {', '.join(disallowed)}".encode(), _encode_headers(headers)
    return 200, b"OK", _encode_headers(headers)


def allows_origin(cors: Cors, origin: str) -> bool:
    """Whether the rules allow requests of pages of that origin."""
    allowed = cors.allow_origins
    return "*" in allowed or origin in allowed or _matches_regex(cors, origin)


def _origin_headers(cors: Cors, origin: str) -> list[tuple[str, str]]:
    """The headers that allow the origin; none if it is not allowed."""
    if not allows_origin(cors, origin):
        return []
    allows_all = "*" in cors.allow_origins
    # Browsers reject `*` for requests with credentials.
    if allows_all and not cors.allow_credentials:
        return [("Access-Control-Allow-Origin", "*")]
    headers = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
    if cors.allow_credentials:
        headers.append(("Access-Control-Allow-Credentials", "true"))
    return headers


def _matches_regex(cors: Cors, origin: str) -> bool:
    pattern = cors.allow_origin_regex
    return (
        pattern is not None
        and len(origin) <= _MAX_ORIGIN_LENGTH
        and compile_pattern(pattern).fullmatch(origin) is not None
    )


def _encode_headers(headers: Iterable[tuple[str, str]]) -> list[Header]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
