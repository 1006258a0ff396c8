"""Saved views of a project's list: a filter with a name, for everybody in the workspace."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from apps.console.pages import PageRequest, workspace_page
from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.tracing.models import Project, SavedView
from apps.tracing.pages import projects
from apps.tracing.pages.listing import ListState


@require_POST
@workspace_page(Permission.PROJECTS_WRITE)
def project_views(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Save what the list is limited to as a new view or into one, rename or delete it."""
    project = projects.project(request.caller.workspace_id, project_id)
    state = ListState.read(QueryDict(request.POST.get("back", "")))
    name = request.POST.get("name", "").strip()[:200] or "Untitled"
    action = request.POST.get("action", "create")
    if action == "create":
        saved = SavedView(
            workspace_id=project.workspace_id,
            project=project,
            display_name=name,
            filter_string=state.text,
        )
        saved.save(force_insert=True)
        messages.success(request, f"“{name}” is saved.")
        return redirect(_address(project, state, str(saved.pk)))
    saved = _one(project, request.POST.get("view", ""))
    if action == "delete":
        saved.delete()
        messages.success(request, f"“{saved.display_name}” is deleted.")
        return redirect(_address(project, state, ""))
    saved.display_name, saved.filter_string = name, state.text
    saved.save(update_fields=["display_name", "filter_string", "updated_at"])
    messages.success(request, f"“{name}” is saved.")
    return redirect(_address(project, state, str(saved.pk)))


def _one(project: Project, given: str) -> SavedView:
    try:
        key = UUID(given)
    except ValueError:
        raise errors.NotFound from None
    return get_or_404(
        SavedView.objects.for_workspace(project.workspace_id), pk=key, project=project
    )


def _address(project: Project, state: ListState, view: str) -> str:
    address = reverse("project-detail", args=[project.workspace_id, project.pk])
    return address + state.address(filter=state.text, q="", view=view)
