"""The runs of a project: list, columns, suggestions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from apps.organizations.permissions import Permission
from apps.trace_store import Status, run_store
from apps.tracing.models import Project, SavedView, ViewType
from apps.tracing.pages import columns, filter_help, projects, run_list
from apps.tracing.pages.run_list import ListState
from apps.tracing.views.saved_views import opened
from apps.web_ui.pages import PageRequest, workspace_page

_YEAR = 31_536_000
MOST_VIEWS = 100


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """The runs that the address asks for; as a fragment the table alone."""
    project = projects.project(request.caller.workspace_id, project_id)
    if not request.GET and (view := _default(project)):
        return redirect(f"{request.path}{opened(view)}")
    state = ListState.read(request.GET)
    context = _list(request, project, state)
    if request.htmx:
        return render(request, "tracing/run_list.html#rows", context)
    context |= _beside(request, project, state)
    status = 422 if context["list"].problem else 200
    return render(request, "tracing/run_list.html", context, status=status)


@require_POST
@workspace_page(Permission.RUNS_READ)
def project_columns(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Which columns, in what order: `up` and `add` change one thing, else what is ticked stays."""
    project = projects.project(request.caller.workspace_id, project_id)
    keys: list[str] = request.POST.getlist("column")
    if added := request.POST.get("add", "").strip():
        keys.append(added)
    if (moved := request.POST.get("up", "")) in keys[1:]:
        at = keys.index(moved)
        keys[at - 1 : at + 1] = [moved, keys[at - 1]]
    wanted = columns.named(columns.USUAL if "usual" in request.POST else keys)
    back = QueryDict(request.POST.get("back", ""), mutable=True)
    if "columns" in back:  # a view's, which are changed where they are said
        back["columns"] = columns.as_text(wanted)
        return redirect(f"{_list_address(project)}?{back.urlencode()}")
    response = redirect(_back(request, project))
    cookie = columns.as_cookie(wanted)
    if cookie:
        response.set_cookie(columns.COOKIE, cookie, _YEAR, samesite="Lax", httponly=True)
    else:
        response.delete_cookie(columns.COOKIE, samesite="Lax")
    return response


def _list(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    shown = columns.chosen(state.columns or request.COOKIES.get(columns.COOKIE))
    after = request.GET.get("after", "")
    found = run_list.run_list(project, state, shown, cursor=after)
    is_empty = not found.rows and not state.is_limited
    return {
        "project": project,
        "project_has_runs": is_empty and _has_runs(project),
        "state": state,
        "columns": shown,
        "offered": columns.offered(shown),
        "list": found,
        "after": after,
        "may_delete_runs": request.caller.may(Permission.RUNS_DELETE),
        "is_settled": all(listed.row.status != Status.PENDING for listed in found.rows),
    }


def _has_runs(project: Project) -> bool:
    return run_store.project_stats(project.workspace_id, [project.pk])[project.pk].run_count > 0


def _beside(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    """What the page has besides the table."""
    saved = list(
        SavedView.objects.for_workspace(project.workspace_id)
        .filter(project=project, type=ViewType.RUNS)
        .order_by("display_name", "pk")[:MOST_VIEWS]
    )
    return {
        "tab": state.show or "traces",
        "language": filter_help.suggestions(),
        "saved_views": [(view, opened(view)) for view in saved],
        "current_view": next((view for view in saved if str(view.pk) == state.view), None),
        "may_write": request.caller.may(Permission.PROJECTS_WRITE),
    }


def _default(project: Project) -> SavedView | None:
    """The view that the project opens with."""
    views = SavedView.objects.for_workspace(project.workspace_id)
    return views.filter(project=project, is_default=True).first()


def _back(request: PageRequest, project: Project) -> str:
    """The list as it was, by the query string that the form carried."""
    query = request.POST.get("back", "")
    return f"{_list_address(project)}?{query}" if query else _list_address(project)


def _list_address(project: Project) -> str:
    return reverse("project-detail", args=[project.workspace_id, project.pk])
