"""CORS rules of a deployment (`http.cors`), which replace the server's defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable

from apps.deployments.langgraph_json.sections import Cors

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
    refused = [] if headers else ["origin"]
    if method not in methods:
        refused.append("method")
    if requested and "*" not in cors.allow_headers:
        known = {name.lower() for name in allowed}
        if any(name.strip().lower() not in known for name in requested.split(",")):
            refused.append("headers")
    headers += [
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Max-Age", str(cors.max_age)),
        ("Vary", "Origin, Access-Control-Request-Headers"),
    ]
    allowed_headers = requested if requested and "*" in cors.allow_headers else ", ".join(allowed)
    headers.append(("Access-Control-Allow-Headers", allowed_headers))
    if refused:
        return 400, f"Disallowed CORS {', '.join(refused)}".encode(), _encode_headers(headers)
    return 200, b"OK", _encode_headers(headers)


def _origin_headers(cors: Cors, origin: str) -> list[tuple[str, str]]:
    """The headers that allow the origin; none if it is not allowed."""
    allows_all = "*" in cors.allow_origins
    if not allows_all and origin not in cors.allow_origins and not _matches_regex(cors, origin):
        return []
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
        and re.fullmatch(pattern, origin) is not None
    )


def _encode_headers(headers: Iterable[tuple[str, str]]) -> list[Header]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
