"""Threads: conversations of several traces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.pages import filter_help, projects, thread_details, threads, trajectories
from apps.tracing.pages.run_list import ListState
from apps.web_ui.pages import PageRequest, workspace_page

VIEWS = (("trajectory", "Trajectory"), ("", "Turns"), ("details", "Details"))
"""The ways to read a thread, as its address names them."""
_TEMPLATES = {"trajectory": "thread_trajectory", "": "thread", "details": "thread_details"}


@require_GET
@workspace_page(Permission.RUNS_READ)
def thread_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The turns of the thread that `thread` names: keys may hold anything, so not in the path."""
    project = projects.project(request.caller.workspace_id, project_id)
    key, after = request.GET.get("thread", ""), request.GET.get("after", "")
    view = request.GET.get("view", "")
    if not key or view not in dict(VIEWS):
        raise errors.NotFound
    found = _read(project, key, view, after)
    if found is None:
        raise errors.NotFound
    context = {"project": project, "key": key, "view": view, "views": VIEWS, "after": after}
    return render(request, f"tracing/{_TEMPLATES[view]}.html", context | found)


def _read(project: Project, key: str, view: str, after: str) -> dict[str, Any] | None:
    """What the way to read needs; None when there is no such thread."""
    match view:
        case "trajectory":
            steps = trajectories.trajectory(project, key, cursor=after)
            there = bool(steps.passages)
            found = {"trajectory": steps, "most_steps": trajectories.MOST_STEPS}
            return found | {"next_cursor": steps.next_cursor} if there else None
        case "details":
            told = thread_details.details(project, key, cursor=after)
            return {"details": told, "next_cursor": told.next_cursor} if told else None
    thread = threads.thread(project, key, cursor=after)
    return {"thread": thread, "next_cursor": thread.next_cursor} if thread.turns else None


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_threads(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The project's threads, by their last turn."""
    project = projects.project(request.caller.workspace_id, project_id)
    state = ListState.read(request.GET)
    given = request.GET.get("page", "")
    page = int(given) if given.isdecimal() and len(given) < 6 else 0
    found = threads.listed(project, state, page)
    context = {
        "project": project,
        "tab": "threads",
        "chosen": state,
        "list": found,
        "language": filter_help.suggestions(),
        "page": page,
        "next_page": page + 1 if (page + 1) * threads.THREADS_A_PAGE < found.total else None,
    }
    status = 422 if found.problem else 200
    return render(request, "tracing/thread_list.html", context, status=status)
