"""Pages of threads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.pages import query_clauses, threads, transcripts
from apps.tracing.pages.list_state import ListState
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, workspace_page

VIEWS = (("", "Transcript"), ("turns", "Turns"), ("details", "Details"))
"""The views of a thread by query parameter."""
_TEMPLATES = {"": "thread_transcript", "turns": "thread", "details": "thread_details"}
_FORMER_VIEWS = {"trajectory": ""}
"""Views of old links, with what shows the same now."""


@require_GET
@workspace_page(Permission.RUNS_READ)
def thread_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render a thread; its key is a query parameter because keys may hold any character."""
    project = get_project(request.caller.workspace_id, project_id)
    key, after = request.GET.get("thread", ""), request.GET.get("after", "")
    view = request.GET.get("view", "")
    view = _FORMER_VIEWS.get(view, view)
    if not key or view not in dict(VIEWS):
        raise errors.NotFound
    result = _load_view(project, key, view, after)
    if result is None:
        raise errors.NotFound
    context = {"project": project, "key": key, "view": view, "views": VIEWS, "after": after}
    return render(request, f"tracing/{_TEMPLATES[view]}.html", context | result)


def _load_view(project: Project, key: str, view: str, after: str) -> dict[str, Any] | None:
    """Load the data of the view; None if the thread does not exist."""
    match view:
        case "":
            turns, next_cursor = transcripts.load_turn_transcripts(project, key, cursor=after)
            if not turns:
                return None
            base = reverse("project-detail", args=[project.workspace_id, project.pk])
            return {"turns": turns, "next_cursor": next_cursor, "run_base": f"{base}/r/"}
        case "details":
            stats = threads.load_details(project, key, cursor=after)
            return {"details": stats, "next_cursor": stats.next_cursor} if stats else None
    thread = threads.load_thread(project, key, cursor=after)
    return {"thread": thread, "next_cursor": thread.next_cursor} if thread.turns else None


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_threads(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render the project's threads by latest turn."""
    project = get_project(request.caller.workspace_id, project_id)
    state = ListState.read(request.GET)
    value = request.GET.get("page", "")
    page = int(value) if value.isdecimal() and len(value) < 6 else 0
    result = threads.load_thread_list(project, state, page)
    context = {
        "project": project,
        "tab": "threads",
        "state": state,
        "list": result,
        "language": query_clauses.language(),
        "page": page,
        "next_page": page + 1 if (page + 1) * threads.THREADS_PER_PAGE < result.total else None,
    }
    return render(request, "tracing/thread_list.html", context)
