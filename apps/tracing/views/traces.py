"""Pages of a trace: its runs, payloads and attachments, and the comparison of two traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.core.json import dumps_text
from apps.organizations.permissions import Permission
from apps.trace_store import Payload, RunQuery, RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages import comparison, run_views, traces, transcripts
from apps.tracing.pages.run_views import RunPageData
from apps.tracing.pages.trace_alignment import Alignment, Step
from apps.tracing.pages.transcripts import Transcript
from apps.tracing.services import get_project
from apps.tracing.views.feedback import feedback_context
from apps.web_ui.badges import RUN_TYPES
from apps.web_ui.pages import PageRequest, workspace_page

INLINE_TYPES = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "audio/",
    "video/",
    "application/pdf",
)
"""Attachment types that browsers may render; others are downloads."""
COMPARE_MODES = ("steps", "io", "metadata")
"""What the comparison of two traces shows; the first is the default."""
TRANSCRIPT = "transcript"
MAX_OFFSET_DIGITS = 6
MAX_CANDIDATES = 30
"""The maximum number of runs that the comparison page offers."""


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_detail(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Render a run within its trace; for htmx, only the run."""
    project = get_project(request.caller.workspace_id, project_id)
    run = run_views.load_run(project, run_id)
    if not request.caller.may(Permission.DEPLOYMENTS_READ):
        run = replace(run, deployment=None)
    context = {
        "project": project,
        "run": run,
        "is_preview": request.GET.get("part") == "preview",
        "may_share": request.caller.may(Permission.RUNS_SHARE),
        "may_delete_runs": request.caller.may(Permission.RUNS_DELETE),
        **feedback_context(request, project.pk),
    }
    if request.htmx:
        return render(request, "tracing/run.html", context)
    url = reverse("project-detail", args=[project.workspace_id, project.pk])
    key = run.row.thread_key
    tree = traces.load_trace(project, run.row.trace_id)
    rows = [tree_run.row for tree_run in tree.runs]
    mode = display_mode(request, run.row, rows)
    failed = tree.failed_run
    is_opened = run.row.is_root and mode != TRANSCRIPT and "view" not in request.GET
    if is_opened and run.row.has_failed and failed is not None and failed.id != run.row.id:
        # A trace that failed opens at the run that made it fail.
        parameters = f"?{request.GET.urlencode()}" if request.GET else ""
        return redirect(f"{url}/r/{failed.id}{parameters}")
    context |= {
        "tree": tree,
        "tree_src": f"{url}/r/{run.row.trace_id}/tree.json",
        "run_base": f"{url}/r/",
        "thread_url": f"{url}/thread?{urlencode({'thread': key})}" if key else "",
        "icons": dumps_text(RUN_TYPES),
        "mode": mode,
        "has_transcript": transcripts.has_messages(rows),
    }
    if mode == TRANSCRIPT:
        query = RunQuery(project_ids=[project.pk], trace_id=run.row.trace_id)
        show_hidden = "hidden" in request.GET
        transcript = transcripts.load_transcript(
            project.workspace_id, query, rows, show_hidden=show_hidden, with_feedback=True
        )
        live_url = f"{url}/r/{run.row.trace_id}/transcript"
        context |= transcript_context(transcript, live_url, show_hidden=show_hidden)
        context["markdown_url"] = f"{url}/r/{run.row.trace_id}/transcript.md"
    return render(request, "tracing/trace.html", context)


def display_mode(request: HttpRequest, row: RunRow, rows: Sequence[RunRow]) -> str:
    """Return how the page shows the trace: as a transcript, a tree or a waterfall.

    The query parameter decides, else the reader's last choice. Traces with a conversation open as
    a transcript at first, but for a link to a run within.
    """
    may_show = transcripts.has_messages(rows)
    modes = (*((TRANSCRIPT,) if may_show else ()), "tree", "waterfall")
    for mode in (request.GET.get("view", ""), request.COOKIES.get("slipway_trace", "")):
        if mode in modes and (row.is_root or mode != TRANSCRIPT or "view" in request.GET):
            return mode
    return TRANSCRIPT if may_show and row.is_root else "tree"


def transcript_context(
    transcript: Transcript | None, url: str, *, show_hidden: bool = False
) -> dict[str, Any]:
    """Return what the templates of a page of a transcript need; `url` loads its other pages."""
    if transcript is None:
        return {"transcript": None, "blocks": (), "next_url": ""}
    offset = transcript.next_offset
    hidden = {"hidden": 1} if show_hidden else {}
    next_url = "" if offset is None else f"{url}?{urlencode({'after': offset} | hidden)}"
    live_url = f"{url}?{urlencode({'live': 1} | hidden)}" if transcript.is_running else ""
    return {
        "transcript": transcript,
        "blocks": transcript.blocks,
        "next_url": next_url,
        "live_url": live_url,
        "show_hidden": show_hidden,
    }


def parse_offset(request: HttpRequest) -> int:
    """Return the number of runs before the page of a transcript; raises 404 for a bad one."""
    value = request.GET.get("after", "0")
    if not value.isdecimal() or len(value) > MAX_OFFSET_DIGITS:
        raise errors.NotFound
    return int(value)


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_transcript(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Render the blocks of a later page of the transcript; with `live`, the list of the first."""
    project = get_project(request.caller.workspace_id, project_id)
    show_hidden = "hidden" in request.GET
    transcript = _load_transcript(
        project, run_id, parse_offset(request), show_hidden=show_hidden, with_feedback=True
    )
    url = reverse("project-detail", args=[project.workspace_id, project.pk])
    context = transcript_context(
        transcript, f"{url}/r/{run_id}/transcript", show_hidden=show_hidden
    )
    is_live = "live" in request.GET
    template = "tracing/transcript.html#messages" if is_live else "tracing/transcript_blocks.html"
    return render(request, template, context | {"run_base": f"{url}/r/"})


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_transcript_markdown(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Return the first page of the trace's transcript as a Markdown file."""
    project = get_project(request.caller.workspace_id, project_id)
    text = transcripts.render_markdown(_load_transcript(project, run_id, 0))
    response = HttpResponse(text, content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="transcript-{run_id}.md"'
    return response


def _load_transcript(project: Project, trace_id: UUID, offset: int, **options: bool) -> Transcript:
    rows = run_store.fetch_trace(project.workspace_id, trace_id, project_id=project.pk)
    query = RunQuery(project_ids=[project.pk], trace_id=trace_id)
    transcript = transcripts.load_transcript(
        project.workspace_id, query, rows, offset=offset, **options
    )
    if transcript is None:
        raise errors.NotFound
    return transcript


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_tree(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Return the runs of the trace as JSON, for trees too large for the page."""
    project = get_project(request.caller.workspace_id, project_id)
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
    project = get_project(request.caller.workspace_id, project_id)
    json = run_views.load_payload(project, run_id, Payload(payload))
    return HttpResponse(bytes(json), content_type="application/json")


@require_GET
@workspace_page(Permission.RUNS_READ)
def trace_attachment(request: PageRequest, project_id: UUID, run_id: UUID, number: int) -> Any:
    """Serve an attachment: media inline in a sandbox, any other type as a download."""
    project = get_project(request.caller.workspace_id, project_id)
    files = run_views.load_run(project, run_id).row.attachments
    if number >= len(files) or not default_storage.exists(files[number].path):
        raise errors.NotFound
    file = files[number]
    is_inline = file.mime_type.startswith(INLINE_TYPES) and "download" not in request.GET
    response = FileResponse(
        default_storage.open(file.path),
        as_attachment=not is_inline,
        filename=file.name,
        content_type=file.mime_type if is_inline else "application/octet-stream",
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


@require_GET
@workspace_page(Permission.RUNS_READ)
def traces_compare(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Compare the runs `a` and `b`; without `b`, offer runs to compare with.

    Two traces are compared by steps; `step` is the number of the selected one, `only` hides equal
    subtrees, and `mode` shows inputs and outputs or metadata of the two runs instead. For htmx,
    only the selected step.
    """
    project = get_project(request.caller.workspace_id, project_id)
    first = _load_run(project, request.GET.get("a", ""))
    if first is None:
        raise errors.NotFound
    second_project, second = _load_second_run(project, request.GET.get("b", ""))
    context: dict[str, Any] = {"project": project, "first": first}
    if second is None:
        context["candidates"] = _find_candidates(project, first.row)
        return render(request, "tracing/compare.html", context)
    alignment = comparison.align_runs(first, second)
    mode = request.GET.get("mode", "")
    if alignment is None or mode not in COMPARE_MODES:
        mode = "io" if alignment is None else COMPARE_MODES[0]
    context |= {
        "second_project": second_project,
        "comparison": comparison.compare_runs(project, first, second),
        "alignment": alignment,
        "mode": mode,
        "only": "only" in request.GET,
        "pair_query": urlencode({"a": str(first.row.id), "b": str(second.row.id)}),
    }
    if mode == "metadata":
        context["metadata_diff"] = comparison.compare_metadata(first, second)
    if alignment is not None and mode == "steps":
        step = _selected_step(alignment, request.GET.get("step", ""))
        context["step"] = step
        if step is not None:
            context["step_payloads"] = comparison.compare_step(project, second_project, step)
    if request.htmx and request.htmx.target == "step":
        return render(request, "tracing/compare_steps.html#step", context)
    return render(request, "tracing/compare.html", context)


def _load_second_run(project: Project, run_id: str) -> tuple[Project, RunPageData | None]:
    """Return the run and its project, which may be another one of the workspace."""
    if not run_id:
        return project, None
    try:
        result = run_store.get(project.workspace_id, UUID(run_id), payloads=())
    except ValueError:
        raise errors.NotFound from None
    if result is None:
        raise errors.NotFound
    if result.row.project_id != project.pk:
        project = get_project(project.workspace_id, result.row.project_id)
    return project, _load_run(project, run_id)


def _selected_step(alignment: Alignment, text: str) -> Step | None:
    """Return the step with this number, else the first that differs, else the first."""
    number = int(text) if text.isdecimal() and len(text) <= MAX_OFFSET_DIGITS else 0
    steps = alignment.steps
    if 0 < number <= len(steps):
        return steps[number - 1]
    if alignment.first_difference is not None:
        return alignment.first_difference
    return steps[0] if steps else None


def _load_run(project: Project, run_id: str) -> RunPageData | None:
    try:
        return run_views.load_run(project, UUID(run_id)) if run_id else None
    except ValueError:
        raise errors.NotFound from None


def _find_candidates(project: Project, row: RunRow) -> list[RunRow]:
    """Return other runs: those with the same input first, then those of the same name.

    Root runs for a root run, else runs of the same type; the newest of each first.
    """
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True if row.is_root else None,
        run_type=None if row.is_root else row.run_type,
    )
    page = run_store.query(project.workspace_id, query, limit=MAX_CANDIDATES)
    rows = [detail.row for detail in page.runs if detail.row.id != row.id]
    return sorted(
        rows,
        key=lambda other: (other.inputs_preview != row.inputs_preview, other.name != row.name),
    )
