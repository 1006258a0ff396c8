"""Fragments of the run list page that load after the list."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.organizations.permissions import Permission
from apps.trace_store.errors import FilterError
from apps.tracing.pages import projects, related_runs
from apps.tracing.pages.run_list import ListState
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_strip(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = projects.get_project(request.caller.workspace_id, project_id)
    charts = related_runs.load_strip(project, ListState.read(request.GET))
    return render(request, "tracing/list_charts.html", {"charts": charts})


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_facets(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = projects.get_project(request.caller.workspace_id, project_id)
    state = ListState.read(request.GET)
    context = {
        "project": project,
        "state": state,
        "facets": related_runs.load_facets(project, state),
    }
    return render(request, "tracing/facets.html", context)


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_values(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Return the values of a field as suggestions for the filter input."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    state = ListState.read({"range": request.GET.get("range", "")})
    try:
        results = related_runs.suggest_values(project, state, request.GET.get("field", ""))
    except FilterError:
        results = []
    return JsonResponse({"values": results})
