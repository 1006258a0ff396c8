"""What every page's shell shows."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from apps.console.sections import sections_for, settings_for
from apps.core.callers import Caller
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission
from apps.organizations.services import caller_for, organization_caller_for
from apps.web_ui.pages import LAST_WORKSPACE

THEMES = frozenset({"light", "dark"})


def shell(request: HttpRequest) -> dict[str, Any]:
    """Preferences from their cookies, so that no page flashes; workspaces only when asked for."""
    return {
        "theme": _choice(request, "slipway_theme", THEMES),
        "density": _choice(request, "slipway_density", {"compact"}),
        "nav": _choice(request, "slipway_nav", {"rail"}),
        "facet_fold": _choice(request, "slipway_facets", {"folded"}),
        "base_url": settings.BASE_URL,
        "layout": partial(_layout, request),
        "workspaces": SimpleLazyObject(lambda: _workspaces(request)),
        "workspace": SimpleLazyObject(lambda: _workspace(request)),
        "may_deploy": _may(request, Permission.DEPLOYMENTS_WRITE),
        "sections": SimpleLazyObject(lambda: _sections(request)),
        "settings_groups": SimpleLazyObject(lambda: _settings(request)),
    }


def _layout(request: HttpRequest) -> str:
    """The frame of an error page; when the database cannot say who this is, the plain one."""
    try:
        signed_in = getattr(request, "user", None) is not None and request.user.is_authenticated
    except DatabaseError:
        signed_in = False
    return "app_base.html" if signed_in else "public_base.html"


def _may(request: HttpRequest, permission: str) -> bool:
    caller = _caller(request)
    return caller is not None and caller.may(permission)


def _choice(request: HttpRequest, name: str, allowed: frozenset[str] | set[str]) -> str:
    value = request.COOKIES.get(name, "")
    return value if value in allowed else ""


def _workspaces(request: HttpRequest) -> list[Workspace]:
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return []
    found = getattr(request, "open_workspaces", None)
    if found is None:
        rows = Workspace.objects.open_to(user).select_related("organization")
        found = list(rows.order_by("organization__name", "name"))
        request.open_workspaces = found  # type: ignore[attr-defined]
    return found


def _workspace(request: HttpRequest) -> Workspace | None:
    caller = _shown_caller(request)
    if caller is None:
        return None
    return next((w for w in _workspaces(request) if w.pk == caller.workspace_id), None)


def _sections(request: HttpRequest) -> list[dict[str, Any]]:
    caller = _shown_caller(request)
    return [] if caller is None else sections_for(caller, request.resolver_match)


def _settings(request: HttpRequest) -> list[dict[str, Any]]:
    caller = _shown_caller(request)
    if caller is None or not isinstance(request.user, User):
        return []
    organization = organization_caller_for(
        user=request.user, organization_id=caller.organization_id
    )
    return settings_for(caller, organization, request.resolver_match)


def _shown_caller(request: HttpRequest) -> Caller | None:
    """The page's caller; on a page without one (an error), that of the workspace last used."""
    caller = _caller(request)
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    known = {str(workspace.pk): workspace.pk for workspace in _workspaces(request)}
    if caller is None and last in known and isinstance(request.user, User):
        return caller_for(user=request.user, workspace_id=known[last])
    return caller


def _caller(request: HttpRequest) -> Caller | None:
    return getattr(request, "caller", None)
