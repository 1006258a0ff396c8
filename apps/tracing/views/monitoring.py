"""The monitoring page of a project."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from apps.organizations.permissions import Permission
from apps.tracing.pages import monitoring, projects
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.CHARTS_READ)
def project_monitoring(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Return the page, and its charts as a fragment; `whole` returns both together."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    chosen = monitoring.DashboardState.read(request.GET)
    context = {"project": project, "chosen": chosen}
    if request.htmx or "whole" in request.GET:
        address = reverse("project-detail", args=[project.workspace_id, project.pk])
        context["dashboard"] = monitoring.load_dashboard(project, chosen, address)
    if request.htmx:
        return render(request, "tracing/project_monitoring.html#metrics", context)
    context |= {
        "tab": "monitoring",
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
        "groups": monitoring.GROUP_ATTRIBUTES.items(),
    }
    return render(request, "tracing/project_monitoring.html", context)
