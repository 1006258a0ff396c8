"""The run list of a project."""

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
from apps.tracing.views.saved_views import view_query
from apps.web_ui.pages import PageRequest, workspace_page

_COOKIE_SECONDS = 31_536_000
MAX_VIEWS = 100


@require_GET
@workspace_page(Permission.RUNS_READ)
def project_detail(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render the run list; for htmx only the table."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    if not request.GET and (view := _default_view(project)):
        return redirect(f"{request.path}{view_query(view)}")
    state = ListState.read(request.GET)
    context = _list_context(request, project, state)
    if request.htmx:
        return render(request, "tracing/run_list.html#rows", context)
    context |= _page_context(request, project, state)
    status = 422 if context["list"].problem else 200
    return render(request, "tracing/run_list.html", context, status=status)


@require_POST
@workspace_page(Permission.RUNS_READ)
def project_columns(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Save the columns: `up` moves one, `add` adds one, else the checked ones remain."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    keys: list[str] = request.POST.getlist("column")
    if added := request.POST.get("add", "").strip():
        keys.append(added)
    if (moved := request.POST.get("up", "")) in keys[1:]:
        index = keys.index(moved)
        keys[index - 1 : index + 1] = [moved, keys[index - 1]]
    selected = columns.columns_by_key(columns.DEFAULT_COLUMNS if "usual" in request.POST else keys)
    back = QueryDict(request.POST.get("back", ""), mutable=True)
    if "columns" in back:  # columns of a saved view are part of the query string
        back["columns"] = columns.serialize_columns(selected)
        return redirect(f"{_list_address(project)}?{back.urlencode()}")
    response = redirect(_return_address(request, project))
    cookie = columns.serialize_cookie(selected)
    if cookie:
        response.set_cookie(columns.COOKIE, cookie, _COOKIE_SECONDS, samesite="Lax", httponly=True)
    else:
        response.delete_cookie(columns.COOKIE, samesite="Lax")
    return response


def _list_context(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    shown = columns.parse_columns(state.columns or request.COOKIES.get(columns.COOKIE))
    after = request.GET.get("after", "")
    result = run_list.load_run_list(project, state, shown, cursor=after)
    is_empty = not result.rows and not state.is_limited
    return {
        "project": project,
        "project_has_runs": is_empty and _has_runs(project),
        "state": state,
        "columns": shown,
        "offered": columns.available_columns(shown),
        "list": result,
        "after": after,
        "may_delete_runs": request.caller.may(Permission.RUNS_DELETE),
        "is_settled": all(listed.row.status != Status.PENDING for listed in result.rows),
    }


def _has_runs(project: Project) -> bool:
    return run_store.project_stats(project.workspace_id, [project.pk])[project.pk].run_count > 0


def _page_context(request: PageRequest, project: Project, state: ListState) -> dict[str, Any]:
    """Return the page's context besides the table."""
    saved = list(
        SavedView.objects.for_workspace(project.workspace_id)
        .filter(project=project, type=ViewType.RUNS)
        .order_by("display_name", "pk")[:MAX_VIEWS]
    )
    return {
        "tab": state.show or "traces",
        "language": filter_help.filter_suggestions(),
        "saved_views": [(view, view_query(view)) for view in saved],
        "current_view": next((view for view in saved if str(view.pk) == state.view), None),
        "may_write": request.caller.may(Permission.PROJECTS_WRITE),
    }


def _default_view(project: Project) -> SavedView | None:
    """Return the project's default view, if any."""
    views = SavedView.objects.for_workspace(project.workspace_id)
    return views.filter(project=project, is_default=True).first()


def _return_address(request: PageRequest, project: Project) -> str:
    """Return the list's URL with the query string that the form submitted."""
    query = request.POST.get("back", "")
    return f"{_list_address(project)}?{query}" if query else _list_address(project)


def _list_address(project: Project) -> str:
    return reverse("project-detail", args=[project.workspace_id, project.pk])
