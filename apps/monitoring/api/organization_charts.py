"""Charts over the workspaces of an organization: what `charts` has for one workspace."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import OrganizationAPIView, OrganizationRequest
from apps.core.tenancy import get_or_404
from apps.monitoring.api.charts import chart_json, said, section_list, with_data
from apps.monitoring.api.serializers import (
    ChartSerializer,
    CloneSerializer,
    FrameSerializer,
    OrganizationSectionListSerializer,
    PreviewSerializer,
    SectionSerializer,
    frame_of,
)
from apps.monitoring.models import OrganizationChart, OrganizationSection
from apps.monitoring.querysets import OrganizationSectionQuerySet
from apps.monitoring.services import dashboards
from apps.monitoring.services import organization_dashboards as services
from apps.organizations.permissions import OrganizationPermission
from apps.tracing.api.serializers import query_params
from apps.tracing.models import Project

READ: dict[str, str] = {
    "POST": OrganizationPermission.ORGANIZATION_READ,
    "*": OrganizationPermission.ORGANIZATION_MANAGE,
}
WRITE = OrganizationPermission.ORGANIZATION_MANAGE
MOST_SECTIONS = 100


def section_json(section: OrganizationSection) -> dict[str, Any]:
    return {
        "id": section.pk,
        "title": section.title,
        "description": section.description,
        "index": section.index,
        "session_id": None,
        "created_at": section.created_at,
        "modified_at": section.modified_at,
    }


class OrganizationChartsBase(OrganizationAPIView):
    required_permission: ClassVar[str | dict[str, str]] = READ

    def sections(self) -> OrganizationSectionQuerySet:
        return OrganizationSection.objects.of(self.organization_id)

    def section(self, section_id: UUID) -> OrganizationSection:
        return get_or_404(self.sections(), pk=section_id)

    def chart(self, chart_id: UUID) -> OrganizationChart:
        return get_or_404(OrganizationChart.objects.of(self.organization_id), pk=chart_id)

    def readable(self) -> frozenset[UUID]:
        return services.readable_workspaces(self.request.auth)

    def computer(self, data: Any) -> services.ComputerOfMany:
        return services.ComputerOfMany(self.readable(), frame_of(data))

    def shown(
        self, computer: services.ComputerOfMany, section: OrganizationSection
    ) -> dict[str, Any]:
        found = [chart_json(chart) for chart in section.charts.all()]
        found.sort(key=lambda chart: (chart["index"], chart["id"]))
        computer.prepare(found)
        charts = [with_data(computer, chart) for chart in found]
        return section_json(section) | {"charts": charts, "sub_sections": []}


class OrganizationSectionsView(OrganizationChartsBase):
    required_permission = {"GET": OrganizationPermission.ORGANIZATION_READ, "*": WRITE}

    @extend_schema(parameters=[OrganizationSectionListSerializer], responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        """The dashboards of the organization, without their charts."""
        asked = query_params(OrganizationSectionListSerializer, request)
        return section_list(self.sections(), asked, section_json)

    @extend_schema(request=SectionSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        fields = said(SectionSerializer(data=request.data))
        section = services.create_section(organization_id=self.organization_id, **fields)
        return Response(section_json(section) | {"chart_count": 0})


class OrganizationSectionView(OrganizationChartsBase):
    @extend_schema(request=FrameSerializer, responses=dict)
    def post(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        """The section with its charts and their data."""
        section = self.section(organization_section_id)
        return Response(self.shown(self.computer(request.data), section))

    @extend_schema(request=SectionSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        section = self.section(organization_section_id)
        changes = said(SectionSerializer(data=request.data, partial=True))
        return Response(section_json(dashboards.update_section(section=section, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, organization_section_id: UUID) -> Response:
        self.section(organization_section_id).delete()
        return Response(status=204)


class CloneOrganizationSectionView(OrganizationChartsBase):
    required_permission = WRITE

    @extend_schema(request=CloneSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """A copy of a section, or of the dashboard that a project of a workspace has by itself."""
        asked = said(CloneSerializer(data=request.data))
        if asked.get("section_id") is not None:
            copied = services.clone_section(section=self.section(asked["section_id"]))
        else:
            copied = services.clone_project_dashboard(
                organization_id=self.organization_id, project=self._project(asked["session_id"])
            )
        return Response(section_json(copied))

    def _project(self, project_id: UUID) -> Project:
        reason = "an organization's dashboard may be made from a project of each workspace it reads"
        projects = Project.objects.across_workspaces(reason=reason).present()
        return get_or_404(projects.filter(workspace_id__in=self.readable()), pk=project_id)


class OrganizationChartsView(OrganizationChartsBase):
    @extend_schema(request=FrameSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """All sections with their charts and data."""
        computer = self.computer(request.data)
        sections = self.sections().in_order().prefetch_related("charts")[:MOST_SECTIONS]
        return Response({"sections": [self.shown(computer, section) for section in sections]})


class CreateOrganizationChartView(OrganizationChartsBase):
    required_permission = WRITE

    @extend_schema(request=ChartSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        fields = said(ChartSerializer(data=request.data))
        chart = services.create_chart(
            organization_id=self.organization_id,
            section_id=fields.pop("section_id", None),
            readable=self.readable(),
            **fields,
        )
        return Response(chart_json(chart))


class OrganizationPreviewView(OrganizationChartsBase):
    @extend_schema(request=PreviewSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """The data of a chart that is not kept."""
        body = PreviewSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        chart = body.validated_data["chart"]
        computer = self.computer(body.initial_data["bucket_info"])
        series = [{"id": str(at), **one} for at, one in enumerate(chart["series"])]
        services.check_reach(series, computer.workspace_ids)
        points = computer.points(chart["chart_type"], series, chart.get("common_filters") or {})
        return Response({"data": points})


class OrganizationChartView(OrganizationChartsBase):
    @extend_schema(request=FrameSerializer, responses=dict)
    def post(self, request: OrganizationRequest, organization_chart_id: UUID) -> Response:
        """The chart with its data."""
        chart = self.chart(organization_chart_id)
        return Response(with_data(self.computer(request.data), chart_json(chart)))

    @extend_schema(request=ChartSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, organization_chart_id: UUID) -> Response:
        chart = self.chart(organization_chart_id)
        changes = said(ChartSerializer(data=request.data, partial=True))
        changed = services.update_chart(chart=chart, changes=changes, readable=self.readable())
        return Response(chart_json(changed))

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
