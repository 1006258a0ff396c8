"""The list of projects."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from apps.organizations.permissions import Permission
from apps.tracing import services
from apps.tracing.pages import projects, tagging
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.PROJECTS_READ)
def project_list(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:200]
    offered = tagging.load_tag_choices(request.caller.workspace_id)
    tag = tagging.parse_tag_filter(request.GET.get("tag", ""), offered)
    rows, cursor = projects.load_project_list(
        request.caller.workspace_id,
        text=text,
        after=request.GET.get("after", ""),
        tag=tag.pk if tag else None,
    )
    context = {
        "tag": tag,
        "offered": offered,
        "rows": rows,
        "next_cursor": cursor,
        "text": text,
        "may_export": request.caller.may(Permission.EXPORTS_MANAGE),
        "may_delete": request.caller.may(Permission.PROJECTS_DELETE),
    }
    return render(request, "tracing/project_list.html", context)


@require_POST
@workspace_page(Permission.PROJECTS_DELETE)
def projects_delete(request: PageRequest) -> HttpResponse:
    """Delete the selected projects after the typed confirmation."""
    result = projects.get_projects(request.caller.workspace_id, request.POST.getlist("project"))
    if not result:
        messages.error(request, "No projects are selected.")
        return redirect("project-list", request.caller.workspace_id)
    sure = result[0].name if len(result) == 1 else f"{len(result)} projects"
    if request.POST.get("sure") != sure:
        context = {"projects": result, "sure": sure, "is_wrong": "sure" in request.POST}
        status = 422 if "sure" in request.POST else 200
        return render(request, "tracing/projects_delete.html", context, status=status)
    for project in result:
        services.delete_project(project=project)
    messages.success(request, f"{sure} deleted. Traces are deleted in the background.")
    return redirect("project-list", request.caller.workspace_id)
