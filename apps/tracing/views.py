"""The pages of projects and traces."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.http import FileResponse, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from apps.console.badges import RUN_TYPES
from apps.console.pages import PageRequest, workspace_page
from apps.core import errors
from apps.core.json import dumps_text
from apps.organizations.permissions import Permission
from apps.tracing import pages
from apps.tracing.store import Payload, Status, runs

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Attachments that a browser may show; others are only handed out as files."""


@require_GET
@workspace_page(Permission.PROJECTS_READ)
def project_list(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:200]
    rows, cursor = pages.projects(
        request.caller.workspace_id, text=text, after=request.GET.get("after", "")
    )
    context = {"rows": rows, "next_cursor": cursor, "text": text}
    return render(request, "tracing/project_list.html", context)


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The traces of a project; as a fragment those up to `until`, to see how they went on."""
    project = pages.project(request.caller.workspace_id, project_id)
    show, cursor = request.GET.get("show", ""), request.GET.get("after", "")
    until = _moment(request.GET.get("until", ""))
    page = pages.run_list(project, show=show, cursor=cursor, until=until)
    rows = [detail.row for detail in page.runs]
    context = {
        "project": project,
        "rows": rows,
        "next_cursor": page.next_cursor,
        "show": show if show in pages.SHOWN else "",
        "is_settled": all(row.status != Status.PENDING for row in rows),
        "until": until or (rows[0].start_time if rows else None),
    }
    if request.htmx:
        return render(request, "tracing/project_detail.html#rows", context)
    context["stats"] = runs.project_stats(project.workspace_id, [project.pk])[project.pk]
    return render(request, "tracing/project_detail.html", context)


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_new(request: PageRequest, project_id: UUID) -> HttpResponse:
    """How many traces came since the page counted `traces`; 204 when none did."""
    project = pages.project(request.caller.workspace_id, project_id)
    seen = request.GET.get("traces", "")
    stats = runs.project_stats(project.workspace_id, [project.pk])[project.pk]
    count = stats.trace_count - int(seen) if seen.isdecimal() and len(seen) < 16 else 0
    if count <= 0:
        return HttpResponse(status=204)
    return render(request, "tracing/new_traces.html", {"project": project, "count": count})


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_detail(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """A run within its trace; as a fragment the run alone."""
    project = pages.project(request.caller.workspace_id, project_id)
    run = pages.run(project, run_id)
    context = {"project": project, "run": run}
    if request.htmx:
        return render(request, "tracing/run.html", context)
    context |= {
        "tree": pages.trace(project, run.row.trace_id),
        "icons": dumps_text(RUN_TYPES),
        "mode": "waterfall" if request.COOKIES.get("slipway_trace") == "waterfall" else "tree",
    }
    return render(request, "tracing/trace.html", context)


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_payload(
    request: PageRequest, project_id: UUID, run_id: UUID, payload: str
) -> HttpResponse:
    """Inputs, outputs or extra as the JSON that was sent."""
    project = pages.project(request.caller.workspace_id, project_id)
    json = pages.payload(project, run_id, Payload(payload))
    return HttpResponse(bytes(json), content_type="application/json")


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_attachment(request: PageRequest, project_id: UUID, run_id: UUID, number: int) -> Any:
    """A file of the run. Only pictures open in the browser: the rest is a stranger's code."""
    project = pages.project(request.caller.workspace_id, project_id)
    files = pages.run(project, run_id).row.attachments
    if number >= len(files) or not default_storage.exists(files[number].path):
        raise errors.NotFound
    file = files[number]
    shown = file.mime_type in IMAGES
    return FileResponse(
        default_storage.open(file.path),
        as_attachment=not shown,
        filename=file.name,
        content_type=file.mime_type if shown else "application/octet-stream",
    )


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_redirect(request: PageRequest, run_id: UUID) -> HttpResponse:
    """A run by its id alone."""
    found = runs.get(request.caller.workspace_id, run_id, payloads=())
    if found is None:
        raise errors.NotFound
    return redirect("trace-detail", request.caller.workspace_id, found.row.project_id, run_id)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else None
