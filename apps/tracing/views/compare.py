"""Two traces side by side."""

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

CANDIDATES = 30


@require_GET
@workspace_page(Permission.RUNS_READ)
def traces_compare(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The runs `a` and `b`; while `b` is not chosen, runs of the same name to choose from."""
    project = projects.project(request.caller.workspace_id, project_id)
    first = _run(project, request.GET.get("a", ""))
    if first is None:
        raise errors.NotFound
    second = _run(project, request.GET.get("b", ""))
    context = {"project": project, "sides": [first, second] if second else [first], "a": first}
    if second is None:
        context["candidates"] = _like(project, first.row)
    return render(request, "tracing/compare.html", context)


def _run(project: Project, given: str) -> RunView | None:
    try:
        return run_views.run(project, UUID(given)) if given else None
    except ValueError:
        raise errors.NotFound from None


def _like(project: Project, row: RunRow) -> list[RunRow]:
    """The newest runs of the same standing."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True if row.is_root else None,
        run_type=None if row.is_root else row.run_type,
    )
    page = run_store.query(project.workspace_id, query, limit=CANDIDATES)
    return [detail.row for detail in page.runs if detail.row.id != row.id]
