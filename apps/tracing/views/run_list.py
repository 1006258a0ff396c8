"""The run list of a project, and its charts, facets and suggestions, which load after the list."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from apps.organizations.permissions import Permission
from apps.trace_store import Status, run_store
from apps.tracing.models import Project, SavedView, ViewType
from apps.tracing.pages import columns, number_facets, query_clauses, run_list, run_list_summary
from apps.tracing.pages.list_state import ListState
from apps.tracing.services import get_project
from apps.tracing.services.saved_views import MAX_VIEWS
from apps.tracing.views.saved_views import view_query
from apps.web_ui.pages import PageRequest, workspace_page

_COOKIE_SECONDS = 31_536_000
_LISTED_RUNS = ("show", "range", "from", "to")
"""Parameters that select the runs of the list without its filters."""


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render the run list; for htmx, only the table."""
    project = get_project(request.caller.workspace_id, project_id)
    if not request.GET and (view := _default_view(project)):
        return redirect(f"{request.path}{view_query(view)}")
    state = ListState.read(request.GET)
    context = _list_context(request, project, state)
    if request.htmx:
        return render(request, "tracing/run_list.html#rows", context)
    context |= _page_context(request, project, state)
    return render(request, "tracing/run_list.html", context)


@require_POST
@workspace_page(Permission.RUNS_READ)
def project_columns(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Save the checked columns. `up` moves a column to the left, `add` adds one.

    The menu stays open after a move, because a column often moves by several places.
    """
    project = get_project(request.caller.workspace_id, project_id)
    keys: list[str] = request.POST.getlist("column")
    if added := request.POST.get("add", "").strip():
        keys.append(added)
    if (moved := request.POST.get("up", "")) in keys[1:]:
        index = keys.index(moved)
        keys[index - 1 : index + 1] = [moved, keys[index - 1]]
    selected = columns.columns_by_key(columns.DEFAULT_COLUMNS if "reset" in request.POST else keys)
    back = QueryDict(request.POST.get("back", ""), mutable=True)
    if moved:
        back["menu"] = "columns"
    if "columns" in back:  # columns of a saved view are part of the query string
        back["columns"] = columns.serialize_columns(selected)
        return redirect(_list_url(project, back))
    response = redirect(_list_url(project, back))
    cookie = columns.serialize_cookie(selected)
    if cookie:
        response.set_cookie(columns.COOKIE, cookie, _COOKIE_SECONDS, samesite="Lax", httponly=True)
    else:
        response.delete_cookie(columns.COOKIE, samesite="Lax")
    return response


def _list_context(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    visible_columns = columns.parse_columns(state.columns or request.COOKIES.get(columns.COOKIE))
    after = request.GET.get("after", "")
    result = run_list.load_run_list(project, state, visible_columns, cursor=after)
    is_empty = not result.rows and not state.is_limited
    return {
        "project": project,
        "project_has_runs": is_empty and _has_runs(project),
        "state": state,
        "columns": visible_columns,
        "has_default_columns": visible_columns == columns.columns_by_key(columns.DEFAULT_COLUMNS),
        "column_headers": state.column_headers(visible_columns),
        "available_columns": columns.available_columns(visible_columns),
        "list": result,
        "after": after,
        "may_delete_runs": request.caller.may(Permission.RUNS_DELETE),
        "has_running": any(run.row.shown_status == Status.PENDING for run in result.rows),
    }


def _has_runs(project: Project) -> bool:
    return run_store.project_stats(project.workspace_id, [project.pk])[project.pk].run_count > 0


def _page_context(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    """Return the context of the page around the table."""
    saved = list(
        SavedView.objects.for_workspace(project.workspace_id)
        .filter(project=project, type=ViewType.RUNS)
        .order_by("display_name", "pk")[:MAX_VIEWS]
    )
    return {
        "tab": state.show or "traces",
        "language": query_clauses.language(),
        "saved_views": [(view, view_query(view)) for view in saved],
        "query_views": [
            {"name": view.display_name, "url": f"{request.path}{view_query(view)}"}
            for view in saved
        ],
        "current_view": next((view for view in saved if str(view.pk) == state.view), None),
        "may_write": request.caller.may(Permission.PROJECTS_WRITE),
    }


def _default_view(project: Project) -> SavedView | None:
    """Return the project's default view, if any."""
    views = SavedView.objects.for_workspace(project.workspace_id)
    return views.filter(project=project, is_default=True).first()


def _list_url(project: Project, query: QueryDict) -> str:
    url = reverse("project-detail", args=[project.workspace_id, project.pk])
    return f"{url}?{query.urlencode()}" if query else url


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_strip(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = get_project(request.caller.workspace_id, project_id)
    charts = run_list_summary.load_strip(project, ListState.read(request.GET))
    return render(request, "tracing/list_charts.html", {"charts": charts})


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_facets(request: PageRequest, project_id: UUID) -> HttpResponse:
    project = get_project(request.caller.workspace_id, project_id)
    state = ListState.read(request.GET)
    facets = run_list_summary.load_facets(project, state)
    context = {
        "project": project,
        "state": state,
        "facets": [facet for facet in facets if not facet.is_technical],
        "technical_facets": [facet for facet in facets if facet.is_technical],
        "number_facets": number_facets.load_number_facets(project, state.without_invalid_filters),
    }
    return render(request, "tracing/facets.html", context)


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_hints(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render what the list would show without one of its conditions, for a list without runs."""
    project = get_project(request.caller.workspace_id, project_id)
    hints = run_list_summary.load_hints(project, ListState.read(request.GET))
    url = reverse("project-detail", args=[project.workspace_id, project.pk])
    return render(request, "tracing/query_hints.html", {"hints": hints, "list_url": url})


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_values(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Return values of a field of the query language, each with a note such as its count."""
    project = get_project(request.caller.workspace_id, project_id)
    state = ListState.read({name: request.GET.get(name, "") for name in _LISTED_RUNS})
    results = run_list_summary.suggest_values(project, state, request.GET.get("field", "")[:200])
    return JsonResponse({"values": [asdict(result) for result in results]})
