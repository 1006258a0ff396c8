"""Settings, tags and deletion of a project."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.organizations.permissions import Permission
from apps.tracing import errors, services
from apps.tracing.forms import ProjectForm
from apps.tracing.pages import projects, tagging
from apps.web_ui.pages import PageRequest, workspace_page


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROJECTS_READ)
def project_settings(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = projects.get_project(request.caller.workspace_id, project_id)
    form = ProjectForm.of(project, request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.PROJECTS_WRITE)
        if form.is_valid():
            try:
                services.update_project(project=project, changes=form.changes)
            except errors.ProjectNameTaken as taken:
                form.add_error("name", taken.detail)
            else:
                messages.success(request, "Project saved.")
                return redirect("project-settings", project.workspace_id, project.pk)
        project.refresh_from_db()
    context = {
        "project": project,
        "form": form,
        "tab": "settings",
        "tags": tagging.load_tag_choices(project.workspace_id, project.pk),
        "may_tag": request.caller.may(Permission.TAGS_WRITE),
        "may_write": request.caller.may(Permission.PROJECTS_WRITE),
        "may_export": request.caller.may(Permission.EXPORTS_MANAGE),
        "may_delete": request.caller.may(Permission.PROJECTS_DELETE),
    }
    status = 422 if form.is_bound and form.errors else 200
    return render(request, "tracing/project_settings.html", context, status=status)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def project_tags(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Set the project's tags."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    tagging.set_tag(project.workspace_id, project.pk, request.POST)
    messages.success(request, "Project saved.")
    return redirect("project-settings", project.workspace_id, project.pk)


@require_POST
@workspace_page(Permission.PROJECTS_DELETE)
def project_delete(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Delete the project after its name was typed; its runs are removed by a task."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    if request.POST.get("name") != project.name:
        messages.error(request, "The name does not match. The project was not deleted.")
        return redirect("project-settings", project.workspace_id, project.pk)
    services.delete_project(project=project)
    messages.success(
        request, f"{project.name} was deleted. Its traces are deleted in the background."
    )
    return redirect("project-list", project.workspace_id)
