"""What can be done with traces: those selected in the list, or one."""

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
from apps.tracing.pages import projects
from apps.tracing.services.deletion import delete_traces
from apps.web_ui.pages import PageRequest, workspace_page

MOST = 200


@require_POST
@workspace_page(Permission.RUNS_READ)
def traces_selected(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Compare two, or delete the traces of those selected, which is asked again first."""
    project = projects.project(request.caller.workspace_id, project_id)
    rows = _rows(project, request.POST.getlist("run"))
    back = reverse("project-detail", args=[project.workspace_id, project.pk])
    if query := request.POST.get("back", ""):
        back = f"{back}?{query}"
    if not rows:
        messages.error(request, "No runs are selected.")
        return redirect(back)
    if request.POST.get("action") == "compare" and len(rows) == 2:
        chosen = urlencode({"a": str(rows[0].id), "b": str(rows[1].id)})
        address = reverse("traces-compare", args=[project.workspace_id, project.pk])
        return redirect(f"{address}?{chosen}")
    if request.POST.get("action") != "delete":
        messages.error(request, "Select exactly two runs to compare.")
        return redirect(back)
    request.caller.require(Permission.RUNS_DELETE)
    if "sure" not in request.POST:
        context = {"project": project, "rows": rows, "back": back, "query": query}
        return render(request, "tracing/traces_delete.html", context)
    deletion = delete_traces(project=project, trace_ids={row.trace_id for row in rows})
    count = len({row.trace_id for row in rows})
    what = "1 trace" if count == 1 else f"{count} traces"
    if deletion.status == DeletionStatus.DONE:
        messages.success(request, f"{what} with {deletion.removed_runs} runs deleted.")
    else:
        messages.success(request, f"Deleting {what} in the background.")
    return redirect(back)


def _rows(project: Project, given: Collection[str]) -> list[RunRow]:
    """The runs of the project that these ids name, in that order."""
    try:
        ids = list(dict.fromkeys(UUID(one) for one in given))[:MOST]
    except ValueError:
        raise errors.BadRequest("`run` must be a run id.") from None
    query = RunQuery(project_ids=[project.pk], run_ids=ids)
    page = run_store.query(project.workspace_id, query, limit=MOST) if ids else None
    found = {detail.row.id: detail.row for detail in page.runs} if page else {}
    return [found[one] for one in ids if one in found]
