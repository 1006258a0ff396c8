"""Threads: conversations of several traces."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.console.pages import PageRequest, workspace_page
from apps.core import errors
from apps.organizations.permissions import Permission
from apps.tracing.pages import projects, threads


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
