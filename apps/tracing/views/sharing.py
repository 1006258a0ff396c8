"""Public links: their creation and revocation, and the public page."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from apps.core.json import dumps_text
from apps.organizations.permissions import Permission
from apps.trace_store import RunRow, run_store
from apps.tracing.models import Project, Share
from apps.tracing.pages import run_views, traces, transcripts
from apps.tracing.pages.run_feedback import MAX_FEEDBACK, RunFeedback
from apps.tracing.services import get_project, sharing
from apps.tracing.services.sharing import SharedContent
from apps.tracing.views.traces import (
    TRANSCRIPT,
    display_mode,
    parse_offset,
    transcript_context,
)
from apps.web_ui.badges import RUN_TYPES
from apps.web_ui.pages import PageRequest, keep_private, workspace_page


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.RUNS_SHARE)
def trace_share(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Create, show or revoke the link of the run's trace."""
    project = get_project(request.caller.workspace_id, project_id)
    row = run_views.load_run(project, run_id).row
    share = _find_share(project, row)
    if request.method == "POST":
        if request.POST.get("action") == "revoke":
            sharing.revoke_trace_link(project.workspace_id, run_id, project_id=project.pk)
            share = None
        else:
            share = sharing.share_trace(project.workspace_id, run_id, project_id=project.pk)
        if not request.htmx:
            messages.success(request, "Public link created." if share else "Public link revoked.")
            return redirect("trace-share", project.workspace_id, project.pk, run_id)
    context = {"project": project, "row": row, "share": share, "url": _public_url(share)}
    part = "#dialog" if request.htmx else ""
    return render(request, f"tracing/share.html{part}", context)


@require_GET
def public_trace(request: HttpRequest, token: UUID, run_id: UUID | None = None) -> HttpResponse:
    """Render the public page of a link; 404 if it was revoked."""
    shared = sharing.resolve_link(token)
    detail = shared.run(run_id)
    scores = shared.feedback().filter(run_id=detail.row.id).order_by("-created_at", "-id")
    feedback = [RunFeedback(row) for row in scores[:MAX_FEEDBACK]]
    url = reverse("public-trace", args=[token])
    context = {
        "run": run_views.build_view(detail, feedback),
        "is_public": True,
        "token": token,
        "run_base": f"{url}/",
    }
    if request.headers.get("HX-Request"):
        return keep_private(render(request, "tracing/run.html", context))
    rows = _read_rows(shared)
    mode = display_mode(request, detail.row, rows)
    context |= {
        "tree": traces.build_shared_tree(rows),
        "icons": dumps_text(RUN_TYPES),
        "mode": mode,
        "has_transcript": transcripts.has_messages(rows),
    }
    if mode == TRANSCRIPT:
        transcript = transcripts.load_transcript(shared.share.workspace_id, shared.query(), rows)
        context |= transcript_context(transcript, reverse("public-transcript", args=[token]))
    return keep_private(render(request, "tracing/public_trace.html", context))


@require_GET
def public_transcript(request: HttpRequest, token: UUID) -> HttpResponse:
    """Render the blocks of a later page of a shared transcript; 404 if the link was revoked."""
    shared = sharing.resolve_link(token)
    transcript = transcripts.load_transcript(
        shared.share.workspace_id, shared.query(), _read_rows(shared), offset=parse_offset(request)
    )
    context = transcript_context(transcript, reverse("public-transcript", args=[token]))
    context |= {"is_public": True, "run_base": f"{reverse('public-trace', args=[token])}/"}
    return keep_private(render(request, "tracing/transcript_blocks.html", context))


def _read_rows(shared: SharedContent) -> list[RunRow]:
    """Return the shared runs depth first, as many as a public page shows."""
    page = run_store.query(shared.share.workspace_id, shared.query(), limit=sharing.MAX_RUNS_SHOWN)
    return sorted((run.row for run in page.runs), key=lambda row: row.dotted_order)


def _find_share(project: Project, row: RunRow) -> Share | None:
    return (
        Share.objects.for_workspace(project.workspace_id)
        .filter(project=project, trace_id=row.trace_id)
        .first()
    )


def _public_url(share: Share | None) -> str:
    return f"{settings.BASE_URL}{reverse('public-trace', args=[share.token])}" if share else ""
