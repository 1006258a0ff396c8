"""Pages of a project's monitoring and of dashboards: list, show, edit and copy."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.tenancy import get_or_404
from apps.monitoring import chart_cards, project_dashboard
from apps.monitoring.forms import ChartForm, SectionForm, parse_layout
from apps.monitoring.models import Chart, Section
from apps.monitoring.project_dashboard import DashboardState
from apps.monitoring.services import dashboards
from apps.monitoring.services.chart_computer import ChartComputer
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.pages import periods
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page

MAX_PROJECTS = 500
DEFAULT_CHART: dict[str, Any] = {
    "title": "Run count",
    "chart_type": "line",
    "common_filters": {},
    "series": [{"name": "run count", "metric": "run_count"}],
}
"""The chart that the form for a new chart previews."""


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.CHARTS_READ)
def dashboard_list(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    form = SectionForm(request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.CHARTS_WRITE)
        if form.is_valid():
            section = dashboards.create_section(workspace_id=workspace_id, **form.cleaned_data)
            return redirect("dashboard-detail", workspace_id, section.pk)
    context = {
        "rows": dashboards.list_sections_with_chart_counts(workspace_id),
        "form": form,
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
    }
    return form_page(request, "monitoring/dashboard_list.html", context, form)


@require_GET
@workspace_page(Permission.CHARTS_READ)
def dashboard_detail(request: PageRequest, section_id: UUID) -> HttpResponse:
    """Render the page without charts, which htmx loads as a fragment.

    With the query parameter `whole`, the page contains the charts.
    """
    section = _section(request, section_id)
    state = DashboardState.read(request.GET)
    context: dict[str, Any] = {
        "section": section,
        "state": state,
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
    }
    if request.htmx or "whole" in request.GET:
        charts = chart_cards.limit_charts(
            list(section.charts.in_order()), state.where, state.group_by
        )
        computer = ChartComputer(section.workspace_id, chart_cards.build_time_range(state.period))
        context["cards"] = chart_cards.build_chart_cards(computer, charts, compares=state.compares)
    if request.htmx:
        return render(request, "monitoring/dashboard_detail.html#charts", context)
    context |= {
        "chart_count": section.charts.count(),
        "groups": project_dashboard.GROUP_ATTRIBUTES.items(),
        "list": {"problem": state.problem},
    }
    return render(request, "monitoring/dashboard_detail.html", context)


@require_POST
@workspace_page(Permission.CHARTS_WRITE)
def dashboard_change(request: PageRequest, section_id: UUID) -> HttpResponse:
    """Rename, copy or delete the dashboard."""
    section = _section(request, section_id)
    action = request.POST.get("action")
    if action == "clone":
        section = dashboards.clone_section(section=section)
        messages.success(request, "Dashboard duplicated.")
    elif action == "delete":
        dashboards.delete_section(section=section)
        messages.success(request, f"{section.title} was deleted.")
        return redirect("dashboard-list", section.workspace_id)
    else:
        form = SectionForm(request.POST)
        if form.is_valid():
            dashboards.update_section(section=section, changes=form.cleaned_data)
            messages.success(request, "Dashboard saved.")
    return redirect("dashboard-detail", section.workspace_id, section.pk)


@require_POST
@workspace_page(Permission.CHARTS_WRITE)
def dashboard_arrange(request: PageRequest, section_id: UUID) -> HttpResponse:
    """Set the order and widths of the charts: a `chart` and a `columns` for each, in order."""
    section = _section(request, section_id)
    layout = parse_layout(request.POST.getlist("chart"), request.POST.getlist("columns"))
    dashboards.arrange_charts(section=section, layout=layout)
    return HttpResponse(status=204)


@require_GET
@workspace_page(Permission.CHARTS_READ)
def project_monitoring(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Render the page without charts, which htmx loads as a fragment.

    With the query parameter `whole`, the page contains the charts.
    """
    project = get_project(request.caller.workspace_id, project_id)
    state = DashboardState.read(request.GET)
    context: dict[str, Any] = {"project": project, "state": state}
    if request.htmx or "whole" in request.GET:
        context["dashboard"] = project_dashboard.load_dashboard(project, state)
    if request.htmx:
        return render(request, "monitoring/project_dashboard.html#metrics", context)
    context |= {
        "tab": "monitoring",
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
        "groups": project_dashboard.GROUP_ATTRIBUTES.items(),
        "list": {"problem": state.problem},
    }
    return render(request, "monitoring/project_dashboard.html", context)


@require_POST
@workspace_page(Permission.CHARTS_WRITE)
def copy_project_dashboard(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Copy the dashboard of the project, as its Monitoring page shows it, into an editable one."""
    project = get_project(request.caller.workspace_id, project_id)
    state = DashboardState.read(request.POST)
    start, end = state.period.limits
    section = dashboards.clone_project_dashboard(
        project=project, group_by=state.group_by, feedback_since=start, feedback_until=end
    )
    url = reverse("dashboard-detail", args=[project.workspace_id, section.pk])
    # The copy opens with the time range, the comparison and the filter that the user sees.
    kept = {name: state.parameters.get(name, "") for name in ("compare", "query")}
    parameters = state.period.parameters | {name: value for name, value in kept.items() if value}
    return redirect(f"{url}?{urlencode(parameters)}" if parameters else url)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.CHARTS_WRITE)
def chart_new(request: PageRequest, section_id: UUID) -> HttpResponse:
    return _edit_chart(request, _section(request, section_id), None)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.CHARTS_WRITE)
def chart_edit(request: PageRequest, section_id: UUID, chart_id: UUID) -> HttpResponse:
    section = _section(request, section_id)
    return _edit_chart(request, section, get_or_404(section.charts.all(), pk=chart_id))


def _edit_chart(request: PageRequest, section: Section, chart: Chart | None) -> HttpResponse:
    """Show the form with a preview; save or delete the chart as `action` requests."""
    rows = (
        Project.objects.for_workspace(section.workspace_id)
        .present()
        .without_experiments()
        .order_by("name")
    )
    form = ChartForm(
        request.POST or None,
        projects=list(rows[:MAX_PROJECTS]),
        chart=chart,
        initial=_initial_fields(section, chart),
    )
    action = request.POST.get("action", "")
    if chart is not None and action == "delete":
        chart.delete()
        messages.success(request, f"{chart.title} was deleted.")
        return redirect("dashboard-detail", section.workspace_id, section.pk)

    def save() -> None:
        fields = form.chart_fields
        if chart is None:
            dashboards.create_chart(
                workspace_id=section.workspace_id, section_id=section.pk, **fields
            )
        else:
            dashboards.update_chart(chart=chart, changes=fields)
            if form.new_position:
                dashboards.move_chart(chart=chart, position=form.new_position)

    preview = None
    if form.is_bound and form.is_valid():
        if action == "save" and save_form(form, save):
            return redirect("dashboard-detail", section.workspace_id, section.pk)
        preview = _preview(section, form.chart_fields)
    elif not form.is_bound:
        preview = _preview(section, DEFAULT_CHART) if chart is None else _chart_card(chart)
    context = {"section": section, "chart": chart, "form": form, "preview": preview}
    return form_page(request, "monitoring/chart_form.html", context, form)


def _initial_fields(section: Section, chart: Chart | None) -> dict[str, Any]:
    if chart is None:
        return {"metrics": ["run_count"], "columns": "1"}
    ids = list(section.charts.in_order().values_list("pk", flat=True))
    return ChartForm.initial_for(chart) | {"position": ids.index(chart.pk) + 1}


def _preview(section: Section, fields: dict[str, Any]) -> chart_cards.ChartCard:
    all_series = [
        {"id": str(index)} | {name: value for name, value in series.items() if value is not None}
        for index, series in enumerate(fields["series"])
    ]
    filters = fields["common_filters"]
    common_filters = {name: value for name, value in filters.items() if value is not None}
    chart = Chart(
        workspace_id=section.workspace_id,
        section=section,
        **(fields | {"series": all_series, "common_filters": common_filters}),
    )
    return _chart_card(chart)


def _chart_card(chart: Chart) -> chart_cards.ChartCard:
    time_range = chart_cards.build_time_range(periods.read_period({}))
    computer = ChartComputer(chart.workspace_id, time_range)
    return chart_cards.build_chart_cards(computer, [chart])[0]


def _section(request: PageRequest, section_id: UUID) -> Section:
    return get_or_404(Section.objects.for_workspace(request.caller.workspace_id), pk=section_id)
