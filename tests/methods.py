"""Which methods a route takes, read from its view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.urls import URLPattern, URLResolver

from tests.other_tenant import PARAMETER

CHANGES = ("post", "put", "patch", "delete")
ID = "00000000-0000-0000-0000-000000000001"
# Function views that say 404 to a stranger: by POST alone.
BY_POST = {"/end-impersonation", "/invitations/<str:token>"}
# What allauth's form views take beside POST means the same.
FORMS = ("/account/", "/sign-up/")


def views(resolver: URLResolver, prefix: str = "/") -> Iterator[tuple[str, Any]]:
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}".replace("^", "").replace("$", "")
        if path.startswith("/admin/"):
            continue  # each of its changes is told as `admin.changed`
        if isinstance(entry, URLResolver):
            yield from views(entry, path)
        else:
            assert isinstance(entry, URLPattern)
            yield path, entry.callback


def class_of(view: Any) -> Any:
    """The class behind a view, if there is one, whatever it is wrapped in."""
    while view is not None:
        found = getattr(view, "view_class", None) or getattr(view, "cls", None)
        if found is not None:
            return found
        view = getattr(view, "__wrapped__", None)
    return None


def methods_of(route: str, view: Any) -> list[str]:
    """The methods by which a route may change something."""
    if f"{route}/".startswith(FORMS):
        own = class_of(view)
        return ["post"] if own is None or hasattr(own, "post") else []
    own = class_of(view)
    if own is not None:
        return [method for method in CHANGES if hasattr(own, method)]
    if route in BY_POST:
        return ["post"]
    path = PARAMETER.sub(lambda match: ID if "uuid" in match[0] else "1", route)
    nobody = Client()
    return [m for m in CHANGES if getattr(nobody, m)(path).status_code not in {404, 405}]
