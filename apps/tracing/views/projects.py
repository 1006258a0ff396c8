"""Pages of projects: list, settings, tags, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.organizations.permissions import Permission
from apps.tracing import errors, services
from apps.tracing.forms import ProjectForm
from apps.tracing.pages import projects, tagging
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.PROJECTS_READ)
def project_list(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:200]
    tag_choices = tagging.load_tag_choices(request.caller.workspace_id)
    tag = tagging.parse_tag_filter(request.GET.get("tag", ""), tag_choices)
    sort = projects.BY_NAME if request.GET.get("sort") == projects.BY_NAME else ""
    rows, cursor = projects.load_project_list(
        request.caller.workspace_id,
        text=text,
        after=request.GET.get("after", ""),
        tag=tag.pk if tag else None,
        sort=sort,
    )
    context = {
        "tag": tag,
        "tag_choices": tag_choices,
        "rows": rows,
        "stats_days": projects.STATS_DAYS,
        "has_no_traces": _has_no_traces(request, rows),
        "next_cursor": cursor,
        "sort": sort,
        "text": text,
        "may_export": request.caller.may(Permission.EXPORTS_MANAGE),
        "may_delete": request.caller.may(Permission.PROJECTS_DELETE),
    }
    return render(request, "tracing/project_list.html", context)


def _has_no_traces(request: PageRequest, rows: Sequence[projects.ProjectRow]) -> bool:
    """Return whether the workspace has no trace: all of its projects are listed and empty."""
    is_limited = any(request.GET.get(name) for name in ("q", "tag", "after"))
    return not is_limited and all(row.counts.run_count == 0 for row in rows)


@require_POST
@workspace_page(Permission.PROJECTS_DELETE)
def projects_delete(request: PageRequest) -> HttpResponse:
    """Delete the selected projects if the confirmation was typed."""
    selected_projects = projects.get_projects(
        request.caller.workspace_id, request.POST.getlist("project")
    )
    if not selected_projects:
        messages.error(request, "No projects are selected.")
        return redirect("project-list", request.caller.workspace_id)
    confirmation = (
        selected_projects[0].name
        if len(selected_projects) == 1
        else f"{len(selected_projects)} projects"
    )
    if request.POST.get("confirmation") != confirmation:
        context = {
            "projects": selected_projects,
            "confirmation": confirmation,
            "is_wrong": "confirmation" in request.POST,
        }
        status = 422 if "confirmation" in request.POST else 200
        return render(request, "tracing/projects_delete.html", context, status=status)
    for project in selected_projects:
        services.delete_project(project=project)
    messages.success(request, f"{confirmation} deleted. Traces are deleted in the background.")
    return redirect("project-list", request.caller.workspace_id)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROJECTS_READ)
def project_settings(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = get_project(request.caller.workspace_id, project_id)
    form = ProjectForm.for_project(project, request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.PROJECTS_WRITE)
        if form.is_valid():
            try:
                services.update_project(project=project, changes=form.changes)
            except errors.ProjectNameTaken as error:
                form.add_error("name", error.detail)
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
    project = get_project(request.caller.workspace_id, project_id)
    tagging.set_tags(project.workspace_id, project.pk, request.POST)
    messages.success(request, "Project saved.")
    return redirect("project-settings", project.workspace_id, project.pk)


@require_POST
@workspace_page(Permission.PROJECTS_DELETE)
def project_delete(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Delete the project if its name was typed; a task removes its runs."""
    project = get_project(request.caller.workspace_id, project_id)
    if request.POST.get("name") != project.name:
        messages.error(request, "The name does not match. The project was not deleted.")
        return redirect("project-settings", project.workspace_id, project.pk)
    services.delete_project(project=project)
    messages.success(
        request, f"{project.name} was deleted. Its traces are deleted in the background."
    )
    return redirect("project-list", project.workspace_id)
