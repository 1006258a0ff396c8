"""Saved views of a project's list: filters, time and columns with a name, for everybody here."""

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
from apps.tracing.models import Project, SavedView
from apps.tracing.pages import columns, projects
from apps.tracing.pages.run_list import ListState
from apps.tracing.services import saved_views
from apps.web_ui.pages import PageRequest, workspace_page

KEPT = ("show", "sort", "range", "from", "to", "columns")
"""What of the list's address a view keeps besides its filters."""


@require_POST
@workspace_page(Permission.PROJECTS_WRITE)
def project_views(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Save what the list shows as a new view or into one, make it the default, delete it."""
    project = projects.project(request.caller.workspace_id, project_id)
    state = ListState.read(QueryDict(request.POST.get("back", "")))
    if not state.columns:
        own = columns.chosen(request.COOKIES.get(columns.COOKIE))
        state = replace(state, columns=columns.as_text(own))
    name = request.POST.get("name", "").strip()[:200] or "Untitled"
    action = request.POST.get("action", "create")
    if action == "create":
        saved = saved_views.save_view(project=project, display_name=name, **_fields(state))
        messages.success(request, f"View “{name}” saved.")
        return redirect(_address(project, saved))
    saved = _one(project, request.POST.get("view", ""))
    match action:
        case "delete":
            saved_views.drop_view(view=saved)
            messages.success(request, f"View “{saved.display_name}” deleted.")
            return redirect(_address(project, None))
        case "default" | "usual":
            is_default = action == "default"
            saved_views.choose_default(project=project, view=saved if is_default else None)
            what = f"“{saved.display_name}”" if is_default else "all traces"
            messages.success(request, f"The default view of {project.name} is {what}.")
        case _:
            changes = {"display_name": name} | _fields(state)
            saved = saved_views.change_view(view=saved, changes=changes)
            messages.success(request, f"View “{name}” saved.")
    return redirect(_address(project, saved))


def _fields(state: ListState) -> dict[str, Any]:
    """What a view keeps of the list: its filters, and what else its address says."""
    kept = {name: value for name, value in state.parameters.items() if name in KEPT}
    return {
        "filter_string": state.text,
        "trace_filter_string": state.trace,
        "tree_filter_string": state.tree,
        "shown": kept,
    }


def opened(view: SavedView) -> str:
    """The query string of the list as the view has it."""
    said = {
        "filter": view.filter_string,
        "trace": view.trace_filter_string,
        "tree": view.tree_filter_string,
        **{name: view.shown.get(name) for name in KEPT},
        "view": str(view.pk),
    }
    return f"?{urlencode({name: value for name, value in said.items() if value})}"


def _one(project: Project, given: str) -> SavedView:
    try:
        key = UUID(given)
    except ValueError:
        raise errors.NotFound from None
    return get_or_404(
        SavedView.objects.for_workspace(project.workspace_id), pk=key, project=project
    )


def _address(project: Project, view: SavedView | None) -> str:
    address = reverse("project-detail", args=[project.workspace_id, project.pk])
    return address + (opened(view) if view else "?view=all")
