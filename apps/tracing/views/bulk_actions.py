"""Actions on the traces selected in the run list."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from apps.core import errors
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, RunRow, run_store
from apps.tracing.models import DeletionStatus, Project
from apps.tracing.services import get_project
from apps.tracing.services.deletion import delete_traces
from apps.web_ui.pages import PageRequest, workspace_page

MAX_SELECTED = 200


@require_POST
@workspace_page(Permission.RUNS_READ)
def bulk_action(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Compare two selected runs, or delete the selected traces after confirmation."""
    project = get_project(request.caller.workspace_id, project_id)
    rows = _selected_rows(project, request.POST.getlist("run"))
    back = reverse("project-detail", args=[project.workspace_id, project.pk])
    if query := request.POST.get("back", ""):
        back = f"{back}?{query}"
    if not rows:
        messages.error(request, "No runs are selected.")
        return redirect(back)
    if request.POST.get("action") == "compare" and len(rows) == 2:
        query_string = urlencode({"a": str(rows[0].id), "b": str(rows[1].id)})
        url = reverse("traces-compare", args=[project.workspace_id, project.pk])
        return redirect(f"{url}?{query_string}")
    if request.POST.get("action") != "delete":
        messages.error(request, "Select exactly two runs to compare.")
        return redirect(back)
    request.caller.require(Permission.RUNS_DELETE)
    if "confirmation" not in request.POST:
        context = {"project": project, "rows": rows, "back": back, "query": query}
        return render(request, "tracing/traces_delete.html", context)
    deletion = delete_traces(project=project, trace_ids={row.trace_id for row in rows})
    count = len({row.trace_id for row in rows})
    deleted_traces = "1 trace" if count == 1 else f"{count} traces"
    if deletion.status == DeletionStatus.DONE:
        messages.success(request, f"{deleted_traces} with {deletion.removed_runs} runs deleted.")
    else:
        messages.success(request, f"Deleting {deleted_traces} in the background.")
    return redirect(back)


def _selected_rows(project: Project, run_ids: Collection[str]) -> list[RunRow]:
    """Return the project's runs with these ids, in the order of the ids."""
    try:
        ids = list(dict.fromkeys(UUID(item) for item in run_ids))[:MAX_SELECTED]
    except ValueError:
        raise errors.BadRequest("`run` must be a run id.") from None
    query = RunQuery(project_ids=[project.pk], run_ids=ids)
    page = run_store.query(project.workspace_id, query, limit=MAX_SELECTED) if ids else None
    rows = {detail.row.id: detail.row for detail in page.runs} if page else {}
    return [rows[run_id] for run_id in ids if run_id in rows]
