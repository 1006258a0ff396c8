"""Threads: conversations of several traces."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.console.pages import PageRequest, workspace_page
from apps.core import errors
from apps.organizations.permissions import Permission
from apps.tracing.pages import language, projects, threads
from apps.tracing.pages.listing import ListState


@require_GET
@workspace_page(Permission.RUNS_READ)
def thread_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The turns of the thread that `thread` names: keys may hold anything, so not in the path."""
    project = projects.project(request.caller.workspace_id, project_id)
    key = request.GET.get("thread", "")
    thread = threads.thread(project, key, cursor=request.GET.get("after", "")) if key else None
    if thread is None or not thread.turns:
        raise errors.NotFound
    context = {"project": project, "thread": thread, "after": request.GET.get("after", "")}
    return render(request, "tracing/thread.html", context)


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
        "language": language.suggestions(),
        "page": page,
        "next_page": page + 1 if (page + 1) * threads.THREADS_A_PAGE < found.total else None,
    }
    status = 422 if found.problem else 200
    return render(request, "tracing/thread_list.html", context, status=status)
