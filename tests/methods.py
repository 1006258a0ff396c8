"""The HTTP methods of a route, read from its view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.urls import URLPattern, URLResolver

from tests.other_tenant import PARAMETER

CHANGES = ("post", "put", "patch", "delete")
ID = "00000000-0000-0000-0000-000000000001"
# Function views that change data by POST only, and answer 404 or the sign-in to other callers.
POST_ONLY = {"/end-impersonation", "/invitations/<str:token>", "/oauth/authorize"}
# In allauth's form views every method other than POST has the same effect.
FORMS = ("/account/", "/sign-up/")


def list_views(resolver: URLResolver, prefix: str = "/") -> Iterator[tuple[str, Any]]:
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}".replace("^", "").replace("$", "")
        if path.startswith("/admin/"):
            continue  # tests/admin covers the audit entries of its few forms
        if isinstance(entry, URLResolver):
            yield from list_views(entry, path)
        else:
            assert isinstance(entry, URLPattern)
            yield path, entry.callback


def find_view_class(view: Any) -> Any:
    """Return the class of a view, also of a decorated one; None for a function view."""
    while view is not None:
        view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
        if view_class is not None:
            return view_class
        view = getattr(view, "__wrapped__", None)
    return None


def find_change_methods(route: str, view: Any) -> list[str]:
    """Return the methods of a route that may change data."""
    if f"{route}/".startswith(FORMS):
        view_class = find_view_class(view)
        return ["post"] if view_class is None or hasattr(view_class, "post") else []
    view_class = find_view_class(view)
    if view_class is not None:
        return [method for method in CHANGES if hasattr(view_class, method)]
    if route in POST_ONLY:
        return ["post"]
    path = PARAMETER.sub(lambda match: ID if "uuid" in match[0] else "1", route)
    anonymous_client = Client()
    return [m for m in CHANGES if getattr(anonymous_client, m)(path).status_code not in {404, 405}]
