"""Comparison of two traces."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages import projects, run_views
from apps.tracing.pages.run_views import RunView
from apps.web_ui.pages import PageRequest, workspace_page

MAX_CANDIDATES = 30


@require_GET
@workspace_page(Permission.RUNS_READ)
def traces_compare(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Compare the runs `a` and `b`; without `b`, offer runs of the same name."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    first = _read_run(project, request.GET.get("a", ""))
    if first is None:
        raise errors.NotFound
    second = _read_run(project, request.GET.get("b", ""))
    context = {"project": project, "sides": [first, second] if second else [first], "a": first}
    if second is None:
        context["candidates"] = _similar_runs(project, first.row)
    return render(request, "tracing/compare.html", context)


def _read_run(project: Project, run_id: str) -> RunView | None:
    try:
        return run_views.load_run(project, UUID(run_id)) if run_id else None
    except ValueError:
        raise errors.NotFound from None


def _similar_runs(project: Project, row: RunRow) -> list[RunRow]:
    """Return the newest runs with the same name and position (root or child)."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True if row.is_root else None,
        run_type=None if row.is_root else row.run_type,
    )
    page = run_store.query(project.workspace_id, query, limit=MAX_CANDIDATES)
    return [detail.row for detail in page.runs if detail.row.id != row.id]
