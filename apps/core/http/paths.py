"""Canonical paths: one route table for all prefixes that clients use.

SDKs build `/runs`, `/api/v1/runs`, `/api/runs`, `/v1/platform/...`, `/api/v1/platform/...`,
`/platform/...` (a base that ends in `/v1`), `/api/v2/...` and `/api-host/v2/...`, with and without
a trailing slash. All map to one canonical path before routing, so no prefix has its own rules.
"""

from __future__ import annotations

_PREFIXES = (
    ("/api/v1/v1/", "/v1/"),
    ("/api/v1/v2/", "/v2/"),
    ("/api/v1/platform/", "/v1/platform/"),
    ("/api/v1/", "/"),
    ("/api-host/", "/"),
    ("/api/v2/", "/v2/"),
    ("/api/", "/"),
    ("/platform/", "/v1/platform/"),
)
# Not rewritten: Django's admin needs trailing slashes, agents serve custom routes.
_UNTOUCHED = ("/admin/", "/agents/", "/static/")


def canonical(path: str) -> str:
    """Return the path in the route table for a requested path."""
    if path.startswith(_UNTOUCHED):
        return path
    for prefix, replacement in _PREFIXES:
        if path.startswith(prefix):
            path = replacement + path[len(prefix) :]
            break
    return path.rstrip("/") or "/"
