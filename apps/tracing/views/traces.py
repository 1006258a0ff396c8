"""Pages of a trace, its runs, payloads and attachments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.http import FileResponse, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.core.json import dumps_text
from apps.organizations.permissions import Permission
from apps.trace_store import Payload, run_store
from apps.tracing.pages import projects, run_views, traces
from apps.tracing.views.feedback import feedback_context
from apps.web_ui.badges import RUN_TYPES
from apps.web_ui.pages import PageRequest, workspace_page

PAYLOAD_SECTIONS = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "audio/",
    "video/",
    "application/pdf",
)
"""Attachment types that browsers may render; others are downloads."""


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_detail(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Render a run within its trace; for htmx only the run."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    run = run_views.load_run(project, run_id)
    context = {
        "project": project,
        "run": run,
        "is_preview": request.GET.get("part") == "preview",
        "may_share": request.caller.may(Permission.RUNS_SHARE),
        "may_delete_runs": request.caller.may(Permission.RUNS_DELETE),
        **feedback_context(request),
    }
    if request.htmx:
        return render(request, "tracing/run.html", context)
    address = reverse("project-detail", args=[project.workspace_id, project.pk])
    key = run.row.thread_key
    context |= {
        "tree": traces.load_trace(project, run.row.trace_id),
        "tree_src": f"{address}/r/{run.row.trace_id}/tree.json",
        "run_base": f"{address}/r/",
        "thread_address": f"{address}/thread?{urlencode({'thread': key})}" if key else "",
        "icons": dumps_text(RUN_TYPES),
        "mode": _display_mode(request),
    }
    return render(request, "tracing/trace.html", context)


def _display_mode(request: PageRequest) -> str:
    """Return the tree's display mode from the query parameter or the user's cookie."""
    data = request.GET.get("view", "") or request.COOKIES.get("slipway_trace", "")
    return "waterfall" if data == "waterfall" else "tree"


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_tree(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Return the runs of the trace as JSON, for trees too large for the page."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    tree = traces.load_trace(project, run_id)
    if not tree.runs:
        raise errors.NotFound
    return HttpResponse(bytes(tree.as_json()), content_type="application/json")


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_payload(
    request: PageRequest, project_id: UUID, run_id: UUID, payload: str
) -> HttpResponse:
    """Return inputs, outputs, extra or events as recorded JSON."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    json = run_views.load_payload(project, run_id, Payload(payload))
    return HttpResponse(bytes(json), content_type="application/json")


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_attachment(request: PageRequest, project_id: UUID, run_id: UUID, number: int) -> Any:
    """Serve an attachment: media inline in a sandbox, any other type as a download."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    files = run_views.load_run(project, run_id).row.attachments
    if number >= len(files) or not default_storage.exists(files[number].path):
        raise errors.NotFound
    file = files[number]
    shown = file.mime_type.startswith(PAYLOAD_SECTIONS) and "download" not in request.GET
    response = FileResponse(
        default_storage.open(file.path),
        as_attachment=not shown,
        filename=file.name,
        content_type=file.mime_type if shown else "application/octet-stream",
    )
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    return response


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_redirect(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Redirect from a run id to the run's page."""
    result = run_store.get(request.caller.workspace_id, run_id, payloads=())
    if result is None:
        raise errors.NotFound
    return redirect("trace-detail", request.caller.workspace_id, result.row.project_id, run_id)
