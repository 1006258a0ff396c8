"""One route table for the many addresses under which clients ask for the same thing.

SDKs build `/runs`, `/api/v1/runs`, `/api/runs`, `/v1/platform/...`, `/api/v1/platform/...`,
`/platform/...` (a base that ends in `/v1`), `/api/v2/...` and `/api-host/v2/...`, with and without
a trailing slash. All become one canonical path before routing, so no prefix has rules of its own.
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
# Not ours to rewrite: Django's admin wants its slashes, agents serve routes of their own.
_UNTOUCHED = ("/admin/", "/agents/", "/static/")


def canonical(path: str) -> str:
    """The path under which the route table knows this address."""
    if path.startswith(_UNTOUCHED):
        return path
    for prefix, instead in _PREFIXES:
        if path.startswith(prefix):
            path = instead + path[len(prefix) :]
            break
    return path.rstrip("/") or "/"
