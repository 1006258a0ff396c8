"""Saved views of a project's list: named filters, time range and columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.trace_store.filters import Expression
from apps.trace_store.filters.formatting import format_filter
from apps.tracing.models import Project, SavedView
from apps.tracing.pages import columns
from apps.tracing.pages.list_state import ListState
from apps.tracing.services import get_project, saved_views
from apps.tracing.services.saved_views import QUERY_PARAMETERS
from apps.web_ui.pages import PageRequest, workspace_page

STORED_PARAMETERS = ("show", "sort", "range", "from", "to", "columns", *QUERY_PARAMETERS)
"""Query parameters that a view stores besides its filters in the API's language."""


@require_POST
@workspace_page(Permission.PROJECTS_WRITE)
def project_views(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Create, update or delete a view, or change the default view."""
    project = get_project(request.caller.workspace_id, project_id)
    state = ListState.read(QueryDict(request.POST.get("back", "")))
    if not state.columns:
        cookie_columns = columns.parse_columns(request.COOKIES.get(columns.COOKIE))
        state = replace(state, columns=columns.serialize_columns(cookie_columns))
    name = request.POST.get("name", "").strip()[:200] or "Untitled"
    action = request.POST.get("action", "create")
    if action == "create":
        saved = saved_views.create_view(project=project, display_name=name, **_view_fields(state))
        messages.success(request, f"View “{name}” saved.")
        return redirect(_view_url(project, saved))
    saved = _find_view(project, request.POST.get("view", ""))
    match action:
        case "delete":
            saved_views.delete_view(view=saved)
            messages.success(request, f"View “{saved.display_name}” deleted.")
            return redirect(_view_url(project, None))
        case "default" | "remove-default":
            is_default = action == "default"
            saved_views.set_default_view(project=project, view=saved if is_default else None)
            label = f"“{saved.display_name}”" if is_default else "all traces"
            messages.success(request, f"The default view of {project.name} is {label}.")
        case _:
            changes = {"display_name": name} | _view_fields(state)
            saved = saved_views.update_view(view=saved, changes=changes)
            messages.success(request, f"View “{name}” saved.")
    return redirect(_view_url(project, saved))


def _view_fields(state: ListState) -> dict[str, Any]:
    """Return a view's fields: the list's filters and other query parameters."""
    parameters = {
        name: value for name, value in state.parameters.items() if name in STORED_PARAMETERS
    }
    return {
        "filter_string": _filter_text(state.where),
        "trace_filter_string": _filter_text(state.where_root),
        "tree_filter_string": _filter_text(state.where_any),
        "shown": parameters,
    }


def _filter_text(where: Expression | None) -> str:
    return "" if where is None else format_filter(where)


def view_query(view: SavedView) -> str:
    """Return the query string of the view.

    A query is stored as it was typed, so that `start:2h` stays relative; a view that the API wrote
    has only filters.
    """
    has_queries = any(view.shown.get(name) for name in QUERY_PARAMETERS)
    filters = {
        "filter": view.filter_string,
        "trace": view.trace_filter_string,
        "tree": view.tree_filter_string,
    }
    data = {
        **({} if has_queries else filters),
        **{name: view.shown.get(name) for name in STORED_PARAMETERS},
        "view": str(view.pk),
    }
    return f"?{urlencode({name: value for name, value in data.items() if value})}"


def _find_view(project: Project, view_id: str) -> SavedView:
    try:
        key = UUID(view_id)
    except ValueError:
        raise errors.NotFound from None
    return get_or_404(
        SavedView.objects.for_workspace(project.workspace_id), pk=key, project=project
    )


def _view_url(project: Project, view: SavedView | None) -> str:
    url = reverse("project-detail", args=[project.workspace_id, project.pk])
    return url + (view_query(view) if view else "?view=all")
