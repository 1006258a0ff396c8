"""Charts and chart sections of a workspace, with their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.monitoring.api.serializers import (
    ChartSerializer,
    CloneSerializer,
    PreviewSerializer,
    SectionListSerializer,
    SectionSerializer,
    TimeRangeSerializer,
    parse_time_range,
)
from apps.monitoring.models import Chart, ChartType, OrganizationChart, OrganizationSection, Section
from apps.monitoring.services import dashboards
from apps.monitoring.services.chart_computer import ChartComputer
from apps.monitoring.services.organization_dashboards import MultiWorkspaceComputer
from apps.organizations.models import ResourceType
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import filter_by_tags
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.models import Project

CHART_PERMISSIONS: dict[str, str] = {"POST": Permission.CHARTS_READ, "*": Permission.CHARTS_WRITE}


def section_json(section: Section | OrganizationSection) -> dict[str, Any]:
    return {
        "id": section.pk,
        "title": section.title,
        "description": section.description,
        "index": section.index,
        "session_id": section.project_id if isinstance(section, Section) else None,
        "created_at": section.created_at,
        "modified_at": section.modified_at,
    }


def chart_json(chart: Chart | OrganizationChart) -> dict[str, Any]:
    text = {"markdown": chart.description or ""} if chart.chart_type == ChartType.TEXT else {}
    return text | {
        "id": chart.pk,
        "title": chart.title,
        "description": chart.description,
        "chart_type": chart.chart_type,
        "index": chart.index,
        "section_id": chart.section_id,
        "metadata": chart.metadata,
        "common_filters": chart.common_filters,
        "series": chart.series,
    }


def chart_with_data(
    computer: ChartComputer | MultiWorkspaceComputer, chart: dict[str, Any]
) -> dict[str, Any]:
    data = computer.compute_points(chart["chart_type"], chart["series"], chart["common_filters"])
    return chart | {"data": data}


def section_with_data(
    computer: ChartComputer | MultiWorkspaceComputer, section: Section | OrganizationSection
) -> dict[str, Any]:
    """Return the section with its charts and their data; `section.charts` may be prefetched."""
    rows: list[Chart | OrganizationChart] = [*section.charts.all()]
    rows.sort(key=lambda row: (row.index, row.created_at, row.pk))
    charts = [chart_json(row) for row in rows]
    computer.prepare(charts)
    charts = [chart_with_data(computer, chart) for chart in charts]
    return section_json(section) | {"charts": charts, "sub_sections": []}


def preview_series(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the series of the preview's chart, each with an id."""
    return [{"id": str(index), **series} for index, series in enumerate(body["chart"]["series"])]


def preview_json(
    computer: ChartComputer | MultiWorkspaceComputer,
    body: dict[str, Any],
    series: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the data of a chart that is not saved."""
    chart = body["chart"]
    return {
        "data": computer.compute_points(
            chart["chart_type"], series, chart.get("common_filters") or {}
        )
    }


class ChartsAPIView(WorkspaceAPIView):
    def computer(self, data: Any) -> ChartComputer:
        return ChartComputer(self.workspace_id, parse_time_range(data))

    def sections(self) -> Any:
        return Section.objects.for_workspace(self.workspace_id)


class SectionsView(ChartsAPIView):
    required_permission = {"GET": Permission.CHARTS_READ, "*": Permission.CHARTS_WRITE}

    @extend_schema(parameters=[SectionListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """The dashboards of the workspace, without their charts."""
        params = query_params(SectionListSerializer, request)
        sections = self.sections()
        if params.get("tag_value_id"):
            resource_types = (ResourceType.DASHBOARD,)
            sections = filter_by_tags(
                sections, self.workspace_id, params["tag_value_id"], resource_types
            )
        return section_list(sections, params, section_json)

    @extend_schema(request=SectionSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        fields = parse_body(SectionSerializer(data=request.data))
        section = dashboards.create_section(workspace_id=self.workspace_id, **fields)
        return Response(section_json(section) | {"chart_count": 0})


def section_list(
    sections: Any, params: dict[str, Any], render: Callable[[Any], dict[str, Any]]
) -> Response:
    """Return the requested page; `X-Pagination-Total` is the number of all matching sections."""
    if params.get("title_contains"):
        sections = sections.filter(title__icontains=params["title_contains"])
    if "ids" in params:
        sections = sections.filter(pk__in=params["ids"])
    total = sections.count()
    if "sort_by" in params:
        sign = "-" if params["sort_by_desc"] else ""
        sections = sections.order_by(f"{sign}{params['sort_by']}", "pk")
    else:
        sections = sections.in_order()
    begin, end = params["offset"], params["offset"] + params["limit"]
    return Response(
        [
            render(section) | {"chart_count": section.chart_count}
            for section in sections.with_counts()[begin:end]
        ],
        headers={"X-Pagination-Total": str(total)},
    )


class SectionView(ChartsAPIView):
    required_permission = CHART_PERMISSIONS

    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: ApiRequest, section_id: UUID) -> Response:
        """The section with its charts and their data."""
        section = get_or_404(self.sections(), pk=section_id)
        return Response(section_with_data(self.computer(request.data), section))

    @extend_schema(request=SectionSerializer, responses=dict)
    def patch(self, request: ApiRequest, section_id: UUID) -> Response:
        section = get_or_404(self.sections(), pk=section_id)
        changes = parse_body(SectionSerializer(data=request.data, partial=True))
        return Response(section_json(dashboards.update_section(section=section, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, section_id: UUID) -> Response:
        dashboards.delete_section(section=get_or_404(self.sections(), pk=section_id))
        return Response(status=204)


class CloneSectionView(ChartsAPIView):
    required_permission = Permission.CHARTS_WRITE

    @extend_schema(request=CloneSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Copy a section, or the prebuilt dashboard of a project."""
        fields = parse_body(CloneSerializer(data=request.data))
        if fields.get("section_id") is not None:
            section = get_or_404(self.sections(), pk=fields["section_id"])
            return Response(section_json(dashboards.clone_section(section=section)))
        projects = Project.objects.for_workspace(self.workspace_id).present()
        project = get_or_404(projects, pk=fields["session_id"])
        return Response(section_json(dashboards.clone_project_dashboard(project=project)))


class ChartsView(ChartsAPIView):
    required_permission = CHART_PERMISSIONS

    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """All sections with their charts and data."""
        computer = self.computer(request.data)
        sections = self.sections().in_order().prefetch_related("charts")[:100]
        return Response(
            {"sections": [section_with_data(computer, section) for section in sections]}
        )


class CreateChartView(ChartsAPIView):
    required_permission = Permission.CHARTS_WRITE

    @extend_schema(request=ChartSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        fields = parse_body(ChartSerializer(data=request.data))
        section_id = fields.pop("section_id", None)
        chart = dashboards.create_chart(
            workspace_id=self.workspace_id, section_id=section_id, **fields
        )
        return Response(chart_json(chart))


class PreviewView(ChartsAPIView):
    required_permission = Permission.CHARTS_READ

    @extend_schema(request=PreviewSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Compute the data of a chart without saving it."""
        data: Any = request.data
        body = validate(PreviewSerializer, data)
        computer = self.computer(data["bucket_info"])
        return Response(preview_json(computer, body, preview_series(body)))


class ChartView(ChartsAPIView):
    required_permission = CHART_PERMISSIONS

    def chart(self, chart_id: UUID) -> Chart:
        return get_or_404(Chart.objects.for_workspace(self.workspace_id), pk=chart_id)

    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: ApiRequest, chart_id: UUID) -> Response:
        """The chart with its data."""
        chart = self.chart(chart_id)
        return Response(chart_with_data(self.computer(request.data), chart_json(chart)))

    @extend_schema(request=ChartSerializer, responses=dict)
    def patch(self, request: ApiRequest, chart_id: UUID) -> Response:
        chart = self.chart(chart_id)
        changes = parse_body(ChartSerializer(data=request.data, partial=True))
        return Response(chart_json(dashboards.update_chart(chart=chart, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, chart_id: UUID) -> Response:
        self.chart(chart_id).delete()
        return Response(status=204)


class ProjectDashboardView(ChartsAPIView):
    required_permission = CHART_PERMISSIONS

    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: ApiRequest, project_id: UUID) -> Response:
        """The prebuilt dashboard of the project, with its data."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        project = get_or_404(projects, pk=project_id)
        time_range = parse_time_range(request.data)
        computer = ChartComputer(self.workspace_id, time_range)
        parts = dashboards.project_dashboard(project, time_range.start, time_range.end)
        computer.prepare([chart for part in parts for chart in part.charts])
        sections = [
            {
                "id": part.id,
                "title": part.title,
                "index": index,
                "charts": [chart_with_data(computer, chart) for chart in part.charts],
            }
            for index, part in enumerate(parts)
        ]
        return Response(
            {
                "id": project.pk,
                "title": project.name,
                "description": None,
                "index": 0,
                "session_id": project.pk,
                "layout": None,
                "charts": [],
                "sub_sections": sections,
            }
        )


def parse_body(body: Any) -> dict[str, Any]:
    """Validate the body and drop its nulls, except those that clear a nullable field."""
    body.is_valid(raise_exception=True)
    fields: dict[str, Any] = body.validated_data
    return {
        name: value
        for name, value in fields.items()
        if value is not None or name in {"description", "metadata"}
    }


routes = [
    path("charts/section", SectionsView.as_view(), name="chart-sections"),
    path("charts/section/clone", CloneSectionView.as_view(), name="chart-section-clone"),
    path("charts/section/<uuid:section_id>", SectionView.as_view(), name="chart-section"),
    path("charts", ChartsView.as_view(), name="charts"),
    path("charts/create", CreateChartView.as_view(), name="chart-create"),
    path("charts/preview", PreviewView.as_view(), name="chart-preview"),
    path("charts/<uuid:chart_id>", ChartView.as_view(), name="chart"),
    path(
        "sessions/<uuid:project_id>/dashboard",
        ProjectDashboardView.as_view(),
        name="project-dashboard",
    ),
]
