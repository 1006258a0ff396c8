"""Dashboards over the workspaces of an organization. Each series names its workspace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core import errors
from apps.core.callers import OrganizationCaller
from apps.core.ids import uuid7
from apps.core.tenancy import check_row_limit, get_or_404
from apps.monitoring.models import OrganizationChart, OrganizationSection
from apps.monitoring.services import dashboards
from apps.monitoring.services.chart_computer import MAX_SERIES, ChartComputer, TimeRange
from apps.organizations.permissions import Permission
from apps.organizations.queries import accessible_workspaces
from apps.tracing.models import Project


def readable_workspaces(caller: OrganizationCaller) -> frozenset[UUID]:
    """Return the ids of the workspaces whose charts the caller may read."""
    return frozenset(
        access.workspace.pk
        for access in accessible_workspaces(caller)
        if Permission.CHARTS_READ in access.permissions
    )


@dataclass
class MultiWorkspaceComputer:
    """Computes charts over the workspaces that the caller may read."""

    workspace_ids: Collection[UUID]
    time_range: TimeRange
    _computers: dict[UUID, ChartComputer] = field(default_factory=dict)

    def prepare(self, charts: Sequence[Mapping[str, Any]]) -> None:
        """Collect the measures of the charts, so that `compute_points` shares queries."""
        for workspace_id in self.workspace_ids:
            workspace_charts = [
                {**chart, "series": _series_of_workspace(workspace_id, chart["series"])}
                for chart in charts
            ]
            if any(chart["series"] for chart in workspace_charts):
                self._computer(workspace_id).prepare(workspace_charts)

    def compute_points(
        self, chart_type: str, payload: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the points in the order of the series; omit series of unreadable workspaces."""
        points: list[dict[str, Any]] = []
        for series in payload:
            workspace_id = parse_workspace_id(series)
            if workspace_id in self.workspace_ids:
                points += self._computer(workspace_id).compute_points(chart_type, [series], common)
        return points

    def _computer(self, workspace_id: UUID) -> ChartComputer:
        if workspace_id not in self._computers:
            self._computers[workspace_id] = ChartComputer(workspace_id, self.time_range)
        return self._computers[workspace_id]


def parse_workspace_id(series: Mapping[str, Any]) -> UUID:
    try:
        return UUID(str(series.get("workspace_id")))
    except ValueError:
        raise errors.Invalid("series.workspace_id: required in each series.") from None


def check_workspaces_readable(
    payload: Sequence[Mapping[str, Any]], readable: Collection[UUID]
) -> None:
    """Raise `NotFound` if a series names a missing or unreadable workspace."""
    if len(payload) > MAX_SERIES:
        raise errors.Invalid(f"series: a chart has at most {MAX_SERIES}.")
    if not {parse_workspace_id(series) for series in payload} <= set(readable):
        raise errors.NotFound("series.workspace_id: workspace not found.")


def _series_of_workspace(
    workspace_id: UUID, payload: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [series for series in payload if parse_workspace_id(series) == workspace_id]


@transaction.atomic
def create_section(*, organization_id: UUID, title: str, **fields: Any) -> OrganizationSection:
    section = OrganizationSection(organization_id=organization_id, title=title, **fields)
    section.save(force_insert=True)
    sections = OrganizationSection.objects.of_organization(organization_id)
    check_row_limit(sections, dashboards.MAX_SECTIONS, "dashboards of an organization")
    return section


@transaction.atomic
def create_chart(
    *, organization_id: UUID, section_id: UUID | None, readable: Collection[UUID], **fields: Any
) -> OrganizationChart:
    """Create a chart in the section, by default in the first section of the organization.

    Raises `Invalid` for an invalid series, `NotFound` for an unreadable workspace.
    """
    sections = OrganizationSection.objects.of_organization(organization_id)
    if section_id is None:
        section = sections.in_order().first() or create_section(
            organization_id=organization_id, title=dashboards.DEFAULT_TITLE
        )
    else:
        section = get_or_404(sections, pk=section_id)
    if section.charts.count() >= dashboards.MAX_CHARTS:
        raise errors.Invalid(f"section_id: a section has at most {dashboards.MAX_CHARTS} charts.")
    check_workspaces_readable(fields.get("series") or (), readable)
    chart = OrganizationChart(
        organization_id=organization_id, section=section, **dashboards.validate_chart_fields(fields)
    )
    chart.save(force_insert=True)
    return chart


def update_chart(
    *, chart: OrganizationChart, changes: Mapping[str, Any], readable: Collection[UUID]
) -> OrganizationChart:
    """Set the changed fields; `section_id` moves the chart to another section."""
    changes = dict(changes)
    if "section_id" in changes:
        sections = OrganizationSection.objects.of_organization(chart.organization_id)
        chart.section = get_or_404(sections, pk=changes.pop("section_id"))
    check_workspaces_readable(changes.get("series") or (), readable)
    fields = {"series": chart.series, "common_filters": chart.common_filters} | changes
    for name, value in dashboards.validate_chart_fields(fields).items():
        setattr(chart, name, value)
    chart.save()
    return chart


@transaction.atomic
def clone_section(*, section: OrganizationSection) -> OrganizationSection:
    """Copy the section and its charts."""
    copy = create_section(
        organization_id=section.organization_id,
        title=f"{section.title[:190]} (copy)",
        description=section.description,
        index=section.index,
    )
    for chart in section.charts.in_order():
        chart.pk, chart.section = uuid7(), copy
        chart.series = dashboards.with_new_ids(chart.series)
        chart.save(force_insert=True)
    return copy


@transaction.atomic
def clone_project_dashboard(*, organization_id: UUID, project: Project) -> OrganizationSection:
    """Copy the prebuilt dashboard of a project into a section of the organization."""
    section = create_section(organization_id=organization_id, title=project.name[:190])
    workspace_id = str(project.workspace_id)
    OrganizationChart.objects.bulk_create(
        OrganizationChart(organization_id=organization_id, section=section, **fields)
        for fields in dashboards.prebuilt_chart_fields(
            dashboards.project_dashboard(project), workspace_id=workspace_id
        )
    )
    return section
