"""Charts and chart sections over the workspaces of an organization."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import OrganizationAPIView, OrganizationRequest, validate
from apps.core.tenancy import get_or_404
from apps.monitoring.api.charts import (
    chart_json,
    chart_with_data,
    parse_body,
    preview_json,
    preview_series,
    section_json,
    section_list,
    section_with_data,
)
from apps.monitoring.api.serializers import (
    ChartSerializer,
    CloneSerializer,
    OrganizationSectionListSerializer,
    PreviewSerializer,
    SectionSerializer,
    TimeRangeSerializer,
    parse_time_range,
)
from apps.monitoring.models import (
    OrganizationChart,
    OrganizationSection,
    OrganizationSectionQuerySet,
)
from apps.monitoring.services import dashboards
from apps.monitoring.services import organization_dashboards as services
from apps.organizations.permissions import OrganizationPermission
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.models import Project

ORGANIZATION_CHART_PERMISSIONS: dict[str, str] = {
    "POST": OrganizationPermission.ORGANIZATION_READ,
    "*": OrganizationPermission.ORGANIZATION_MANAGE,
}
WRITE_PERMISSION = OrganizationPermission.ORGANIZATION_MANAGE
MAX_SECTIONS = 100


class OrganizationChartsBase(OrganizationAPIView):
    required_permission: ClassVar[str | dict[str, str]] = ORGANIZATION_CHART_PERMISSIONS

    def sections(self) -> OrganizationSectionQuerySet:
        return OrganizationSection.objects.of_organization(self.organization_id)

    def section(self, section_id: UUID) -> OrganizationSection:
        return get_or_404(self.sections(), pk=section_id)

    def chart(self, chart_id: UUID) -> OrganizationChart:
        return get_or_404(
            OrganizationChart.objects.of_organization(self.organization_id), pk=chart_id
        )

    def readable_workspace_ids(self) -> frozenset[UUID]:
        return services.readable_workspaces(self.request.auth)

    def computer(self, data: Any) -> services.MultiWorkspaceComputer:
        return services.MultiWorkspaceComputer(
            self.readable_workspace_ids(), parse_time_range(data)
        )


class OrganizationSectionsView(OrganizationChartsBase):
    required_permission = {"GET": OrganizationPermission.ORGANIZATION_READ, "*": WRITE_PERMISSION}

    @extend_schema(parameters=[OrganizationSectionListSerializer], responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        """The dashboards of the organization, without their charts."""
        params = query_params(OrganizationSectionListSerializer, request)
        return section_list(self.sections(), params, section_json)

    @extend_schema(request=SectionSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        fields = parse_body(SectionSerializer(data=request.data))
        section = services.create_section(organization_id=self.organization_id, **fields)
        return Response(section_json(section) | {"chart_count": 0})


class OrganizationSectionView(OrganizationChartsBase):
    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        """The section with its charts and their data."""
        section = self.section(organization_section_id)
        return Response(section_with_data(self.computer(request.data), section))

    @extend_schema(request=SectionSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        section = self.section(organization_section_id)
        changes = parse_body(SectionSerializer(data=request.data, partial=True))
        return Response(section_json(dashboards.update_section(section=section, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        self.section(organization_section_id).delete()
        return Response(status=204)


class CloneOrganizationSectionView(OrganizationChartsBase):
    required_permission = WRITE_PERMISSION

    @extend_schema(request=CloneSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Copy a section, or the prebuilt dashboard of a project."""
        fields = parse_body(CloneSerializer(data=request.data))
        if fields.get("section_id") is not None:
            copy = services.clone_section(section=self.section(fields["section_id"]))
        else:
            copy = services.clone_project_dashboard(
                organization_id=self.organization_id, project=self._project(fields["session_id"])
            )
        return Response(section_json(copy))

    def _project(self, project_id: UUID) -> Project:
        reason = "organization dashboards are copied from projects of all readable workspaces"
        projects = Project.objects.across_workspaces(reason=reason).present()
        return get_or_404(
            projects.filter(workspace_id__in=self.readable_workspace_ids()), pk=project_id
        )


class OrganizationChartsView(OrganizationChartsBase):
    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """All sections with their charts and data."""
        computer = self.computer(request.data)
        sections = self.sections().in_order().prefetch_related("charts")[:MAX_SECTIONS]
        return Response(
            {"sections": [section_with_data(computer, section) for section in sections]}
        )


class CreateOrganizationChartView(OrganizationChartsBase):
    required_permission = WRITE_PERMISSION

    @extend_schema(request=ChartSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        fields = parse_body(ChartSerializer(data=request.data))
        chart = services.create_chart(
            organization_id=self.organization_id,
            section_id=fields.pop("section_id", None),
            readable=self.readable_workspace_ids(),
            **fields,
        )
        return Response(chart_json(chart))


class OrganizationPreviewView(OrganizationChartsBase):
    @extend_schema(request=PreviewSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Compute the data of a chart without saving it."""
        data: Any = request.data
        body = validate(PreviewSerializer, data)
        computer = self.computer(data["bucket_info"])
        series = preview_series(body)
        services.check_workspaces_readable(series, computer.workspace_ids)
        return Response(preview_json(computer, body, series))


class OrganizationChartView(OrganizationChartsBase):
    @extend_schema(request=TimeRangeSerializer, responses=dict)
    def post(self, request: OrganizationRequest, organization_chart_id: UUID) -> Response:
        """The chart with its data."""
        chart = self.chart(organization_chart_id)
        return Response(chart_with_data(self.computer(request.data), chart_json(chart)))

    @extend_schema(request=ChartSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, organization_chart_id: UUID) -> Response:
        chart = self.chart(organization_chart_id)
        changes = parse_body(ChartSerializer(data=request.data, partial=True))
        chart = services.update_chart(
            chart=chart, changes=changes, readable=self.readable_workspace_ids()
        )
        return Response(chart_json(chart))

    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, organization_chart_id: UUID) -> Response:
        self.chart(organization_chart_id).delete()
        return Response(status=204)


_SECTION, _CHART = "<uuid:organization_section_id>", "<uuid:organization_chart_id>"
routes = [
    path("org-charts/section", OrganizationSectionsView.as_view(), name="org-chart-sections"),
    path(
        "org-charts/section/clone",
        CloneOrganizationSectionView.as_view(),
        name="org-chart-section-clone",
    ),
    path(
        f"org-charts/section/{_SECTION}",
        OrganizationSectionView.as_view(),
        name="org-chart-section",
    ),
    path("org-charts", OrganizationChartsView.as_view(), name="org-charts"),
    path("org-charts/create", CreateOrganizationChartView.as_view(), name="org-chart-create"),
    path("org-charts/preview", OrganizationPreviewView.as_view(), name="org-chart-preview"),
    path(f"org-charts/{_CHART}", OrganizationChartView.as_view(), name="org-chart"),
]
