"""Template context of all pages: preferences, workspaces and navigation."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.console.sections import navigation_links, settings_links
from apps.core.callers import Caller
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission
from apps.organizations.services import caller_for, organization_caller_for
from apps.web_ui.pages import LAST_WORKSPACE
from apps.web_ui.time_zone import zone_label

THEMES = frozenset({"light", "dark"})


def page_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context. Preferences come from cookies, so that pages render with them at once.

    Workspaces and navigation are queried when a template uses them.
    """
    return {
        "theme": _cookie_choice(request, "slipway_theme", THEMES),
        "density": _cookie_choice(request, "slipway_density", {"compact"}),
        "nav": _cookie_choice(request, "slipway_nav", {"rail"}),
        "facets_state": _cookie_choice(request, "slipway_facets", {"collapsed"}),
        "base_url": settings.API_BASE_URL,
        "time_zone": timezone.get_current_timezone_name(),
        "time_zone_label": zone_label(),
        "layout": partial(_layout, request),
        "workspaces": SimpleLazyObject(lambda: _workspaces(request)),
        "workspace": SimpleLazyObject(lambda: _workspace(request)),
        "may_deploy": _has_permission(request, Permission.DEPLOYMENTS_WRITE),
        "may_write_secrets": _has_permission(request, Permission.SECRETS_WRITE),
        "may_use_playground": _has_permission(request, Permission.PROMPTS_READ),
        "may_add_to_datasets": _has_permission(request, Permission.DATASETS_WRITE),
        "may_add_to_queues": _has_permission(request, Permission.ANNOTATION_QUEUES_WRITE),
        "sections": SimpleLazyObject(lambda: _sections(request)),
        "settings_groups": SimpleLazyObject(lambda: _settings_groups(request)),
    }


def _layout(request: HttpRequest) -> str:
    """Return the base template of error pages: the public one if the database is down."""
    try:
        is_signed_in = getattr(request, "user", None) is not None and request.user.is_authenticated
    except DatabaseError:
        is_signed_in = False
    return "app_base.html" if is_signed_in else "public_base.html"


def _has_permission(request: HttpRequest, permission: str) -> bool:
    caller = _caller(request)
    return caller is not None and caller.may(permission)


def _cookie_choice(request: HttpRequest, name: str, allowed: frozenset[str] | set[str]) -> str:
    value = request.COOKIES.get(name, "")
    return value if value in allowed else ""


def _workspaces(request: HttpRequest) -> list[Workspace]:
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return []
    workspaces: list[Workspace] | None = getattr(request, "open_workspaces", None)
    if workspaces is None:
        rows = Workspace.objects.open_to(user).select_related("organization")
        workspaces = list(rows.order_by("organization__name", "name"))
        request.open_workspaces = workspaces  # type: ignore[attr-defined]
    return workspaces


def _workspace(request: HttpRequest) -> Workspace | None:
    caller = _caller_or_last_used(request)
    if caller is None:
        return None
    return next((item for item in _workspaces(request) if item.pk == caller.workspace_id), None)


def _sections(request: HttpRequest) -> list[dict[str, Any]]:
    caller = _caller_or_last_used(request)
    return [] if caller is None else navigation_links(caller, request.resolver_match)


def _settings_groups(request: HttpRequest) -> list[dict[str, Any]]:
    caller = _caller_or_last_used(request)
    if caller is None or not isinstance(request.user, User):
        return []
    organization = organization_caller_for(
        user=request.user, organization_id=caller.organization_id
    )
    return settings_links(caller, organization, request.resolver_match)


def _caller_or_last_used(request: HttpRequest) -> Caller | None:
    """Return the caller of the page or, on an error page, in the workspace last used."""
    caller = _caller(request)
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    ids = {str(workspace.pk): workspace.pk for workspace in _workspaces(request)}
    if caller is None and last in ids and isinstance(request.user, User):
        return caller_for(user=request.user, workspace_id=ids[last])
    return caller


def _caller(request: HttpRequest) -> Caller | None:
    return getattr(request, "caller", None)
