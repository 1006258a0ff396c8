"""Pages that list, show, edit and copy dashboards."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.errors import AppError
from apps.core.tenancy import get_or_404
from apps.monitoring import pages
from apps.monitoring.forms import ChartForm, SectionForm
from apps.monitoring.models import Chart, Section
from apps.monitoring.services import dashboards
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.pages import periods, projects
from apps.web_ui.pages import PageRequest, workspace_page

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
        "rows": pages.sections_with_chart_count(workspace_id),
        "form": form,
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
    }
    status = 422 if form.errors else 200
    return render(request, "monitoring/dashboard_list.html", context, status=status)


@require_GET
@workspace_page(Permission.CHARTS_READ)
def dashboard_detail(request: PageRequest, section_id: UUID) -> HttpResponse:
    """Render the page without charts; htmx loads them as a fragment. `whole` renders both."""
    section = _section(request, section_id)
    period = periods.read_period(request.GET)
    context: dict[str, Any] = {
        "section": section,
        "may_write": request.caller.may(Permission.CHARTS_WRITE),
    }
    if request.htmx or "whole" in request.GET:
        charts = list(section.charts.in_order())
        context["chart_views"] = pages.build_chart_cards(section.workspace_id, charts, period)
    if request.htmx:
        return render(request, "monitoring/dashboard_detail.html#charts", context)
    context |= {
        "chart_count": section.charts.count(),
        "period": period,
        "presets": [
            (key, label, "?" if key == periods.DEFAULT_PRESET else f"?range={key}")
            for key, (label, _) in periods.PRESETS.items()
        ],
    }
    return render(request, "monitoring/dashboard_detail.html", context)


@require_POST
@workspace_page(Permission.CHARTS_WRITE)
def dashboard_change(request: PageRequest, section_id: UUID) -> HttpResponse:
    """Rename, copy or delete."""
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
def copy_project_dashboard(request: PageRequest, project_id: UUID) -> HttpResponse:
    """Copy the prebuilt dashboard of the project into an editable one."""
    project = projects.get_project(request.caller.workspace_id, project_id)
    section = dashboards.clone_project_dashboard(project=project)
    return redirect("dashboard-detail", project.workspace_id, section.pk)


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
    rows = Project.objects.for_workspace(section.workspace_id).present().plain().order_by("name")
    form = ChartForm(
        request.POST or None,
        projects=list(rows[:MAX_PROJECTS]),
        chart=chart,
        initial=ChartForm.initial_for(chart) if chart else {"metrics": ["run_count"]},
    )
    action = request.POST.get("action", "")
    if chart is not None and action == "delete":
        chart.delete()
        messages.success(request, f"{chart.title} was deleted.")
        return redirect("dashboard-detail", section.workspace_id, section.pk)
    preview = None
    if form.is_bound and form.is_valid():
        if action == "save" and _save_chart(form, section, chart):
            return redirect("dashboard-detail", section.workspace_id, section.pk)
        preview = _preview(section, form.chart_fields)
    elif not form.is_bound:
        preview = _preview(section, DEFAULT_CHART) if chart is None else _chart_card(chart)
    context = {"section": section, "chart": chart, "form": form, "preview": preview}
    status = 422 if form.errors else 200
    return render(request, "monitoring/chart_form.html", context, status=status)


def _save_chart(form: ChartForm, section: Section, chart: Chart | None) -> bool:
    fields = form.chart_fields
    try:
        if chart is None:
            dashboards.create_chart(
                workspace_id=section.workspace_id, section_id=section.pk, **fields
            )
        else:
            dashboards.update_chart(chart=chart, changes=fields)
    except AppError as error:
        form.add_error(None, error.detail)
        return False
    return True


def _preview(section: Section, fields: dict[str, Any]) -> pages.ChartCard:
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


def _chart_card(chart: Chart) -> pages.ChartCard:
    return pages.build_chart_cards(chart.workspace_id, [chart], periods.read_period({}))[0]


def _section(request: PageRequest, section_id: UUID) -> Section:
    return get_or_404(Section.objects.for_workspace(request.caller.workspace_id), pk=section_id)
