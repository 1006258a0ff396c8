"""Dashboards over the workspaces of an organization. Each series says which one it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core import errors
from apps.core.callers import OrganizationCaller
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.monitoring.models import OrganizationChart, OrganizationSection
from apps.monitoring.services import dashboards
from apps.monitoring.services.computing import MOST_SERIES, Computer, Frame
from apps.organizations.permissions import Permission
from apps.organizations.queries import accessible_workspaces
from apps.tracing.models import Project


def readable_workspaces(caller: OrganizationCaller) -> frozenset[UUID]:
    """The workspaces whose charts the caller may read."""
    return frozenset(
        one.workspace.pk
        for one in accessible_workspaces(caller)
        if Permission.CHARTS_READ in one.permissions
    )


@dataclass
class ComputerOfMany:
    """Computes charts over the workspaces that the caller may read, and over no other."""

    workspace_ids: Collection[UUID]
    frame: Frame
    _computers: dict[UUID, Computer] = field(default_factory=dict)

    def prepare(self, charts: Sequence[Mapping[str, Any]]) -> None:
        """Say which charts will be asked for, so that what they share is looked up once."""
        for workspace_id in self.workspace_ids:
            own = [{**chart, "series": _about(workspace_id, chart["series"])} for chart in charts]
            if any(chart["series"] for chart in own):
                self._computer(workspace_id).prepare(own)

    def points(
        self, chart_type: str, said: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The points of the series, in their order; of a workspace that is shut, none."""
        found: list[dict[str, Any]] = []
        for one in said:
            workspace_id = workspace_of(one)
            if workspace_id in self.workspace_ids:
                found += self._computer(workspace_id).points(chart_type, [one], common)
        return found

    def _computer(self, workspace_id: UUID) -> Computer:
        if workspace_id not in self._computers:
            self._computers[workspace_id] = Computer(workspace_id, self.frame)
        return self._computers[workspace_id]


def workspace_of(series: Mapping[str, Any]) -> UUID:
    try:
        return UUID(str(series.get("workspace_id")))
    except ValueError:
        raise errors.Invalid("series.workspace_id: each names the workspace it is about.") from None


def check_reach(said: Sequence[Mapping[str, Any]], readable: Collection[UUID]) -> None:
    """Refuse series about workspaces that the caller may not read, or that are not there."""
    if len(said) > MOST_SERIES:
        raise errors.Invalid(f"series: at most {MOST_SERIES}.")
    if not {workspace_of(one) for one in said} <= set(readable):
        raise errors.NotFound("series.workspace_id: there is no such workspace for you.")


def _about(workspace_id: UUID, said: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in said if workspace_of(one) == workspace_id]


def create_section(*, organization_id: UUID, title: str, **fields: Any) -> OrganizationSection:
    section = OrganizationSection(organization_id=organization_id, title=title, **fields)
    section.save(force_insert=True)
    return section


@transaction.atomic
def create_chart(
    *, organization_id: UUID, section_id: UUID | None, readable: Collection[UUID], **fields: Any
) -> OrganizationChart:
    """A chart in that section, or in the organization's first one; its series are checked."""
    sections = OrganizationSection.objects.of(organization_id)
    if section_id is None:
        section = sections.in_order().first() or create_section(
            organization_id=organization_id, title=dashboards.DEFAULT_TITLE
        )
    else:
        section = get_or_404(sections, pk=section_id)
    if section.charts.count() >= dashboards.MOST_CHARTS:
        raise errors.Invalid(f"A section has at most {dashboards.MOST_CHARTS} charts.")
    check_reach(fields.get("series") or (), readable)
    chart = OrganizationChart(
        organization_id=organization_id, section=section, **dashboards.checked(fields)
    )
    chart.save(force_insert=True)
    return chart


def update_chart(
    *, chart: OrganizationChart, changes: Mapping[str, Any], readable: Collection[UUID]
) -> OrganizationChart:
    """Set the given fields; `section_id` moves it to another section of the organization."""
    changes = dict(changes)
    if "section_id" in changes:
        sections = OrganizationSection.objects.of(chart.organization_id)
        chart.section = get_or_404(sections, pk=changes.pop("section_id"))
    check_reach(changes.get("series") or (), readable)
    asked = {"series": chart.series, "common_filters": chart.common_filters} | changes
    for name, value in dashboards.checked(asked).items():
        setattr(chart, name, value)
    chart.save()
    return chart


@transaction.atomic
def clone_section(*, section: OrganizationSection) -> OrganizationSection:
    """A copy with copies of its charts."""
    copied = create_section(
        organization_id=section.organization_id,
        title=f"{section.title[:190]} (copy)",
        description=section.description,
        index=section.index,
    )
    for chart in section.charts.in_order():
        chart.pk, chart.section = uuid7(), copied
        chart.series = [{**one, "id": str(uuid7())} for one in chart.series]
        chart.save(force_insert=True)
    return copied


@transaction.atomic
def clone_project_dashboard(*, organization_id: UUID, project: Project) -> OrganizationSection:
    """The dashboard that a project has by itself, as a section of the organization."""
    section = create_section(organization_id=organization_id, title=project.name[:190])
    about = {"workspace_id": str(project.workspace_id)}
    charts = [chart for _, _, made in dashboards.project_dashboard(project) for chart in made]
    OrganizationChart.objects.bulk_create(
        OrganizationChart(
            organization_id=organization_id,
            section=section,
            title=chart["title"][:200],
            chart_type=chart["chart_type"],
            index=at,
            common_filters=chart["common_filters"],
            series=[{**one, "id": str(uuid7()), **about} for one in chart["series"]],
        )
        for at, chart in enumerate(charts)
    )
    return section
