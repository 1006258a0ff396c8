"""The list of projects."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.console.pages import PageRequest, workspace_page
from apps.organizations.permissions import Permission
from apps.tracing.pages import projects


@require_GET
@workspace_page(Permission.PROJECTS_READ)
def project_list(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:200]
    rows, cursor = projects.listed(
        request.caller.workspace_id, text=text, after=request.GET.get("after", "")
    )
    context = {"rows": rows, "next_cursor": cursor, "text": text}
    return render(request, "tracing/project_list.html", context)
