"""Making, changing and copying dashboards and their charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction

from apps.core import errors
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.feedback.services import score_stats
from apps.monitoring import prebuilt
from apps.monitoring.models import Chart, OrganizationSection, Section
from apps.monitoring.series import Scope, series_of
from apps.monitoring.services.computing import MOST_SERIES
from apps.organizations.models import ResourceType
from apps.organizations.services import tags
from apps.tracing.models import Project

S = TypeVar("S", Section, OrganizationSection)
MOST_CHARTS = 200
DEFAULT_TITLE = "Custom charts"


def create_section(*, workspace_id: UUID, title: str, **fields: Any) -> Section:
    section = Section(workspace_id=workspace_id, title=title, **fields)
    section.save(force_insert=True)
    return section


def update_section(*, section: S, changes: Mapping[str, Any]) -> S:
    for name, value in changes.items():
        setattr(section, name, value)
    section.save(update_fields=[*changes, "modified_at"])
    return section


@transaction.atomic
def delete_section(*, section: Section) -> None:
    """The section goes with its charts, and its tags with it."""
    tags.delete_taggings(
        workspace_id=section.workspace_id,
        resource_type=ResourceType.DASHBOARD,
        resource_id=section.pk,
    )
    section.delete()


@transaction.atomic
def create_chart(*, workspace_id: UUID, section_id: UUID | None, **fields: Any) -> Chart:
    """A chart in that section, or in the workspace's first one; its series are checked."""
    sections = Section.objects.for_workspace(workspace_id)
    if section_id is None:
        section = sections.filter(project_id=None).in_order().first()
        section = section or create_section(workspace_id=workspace_id, title=DEFAULT_TITLE)
    else:
        section = get_or_404(sections, pk=section_id)
    if section.charts.count() >= MOST_CHARTS:
        raise errors.Invalid(f"A section has at most {MOST_CHARTS} charts.")
    chart = Chart(workspace_id=workspace_id, section=section, **checked(fields, workspace_id))
    chart.save(force_insert=True)
    return chart


def update_chart(*, chart: Chart, changes: Mapping[str, Any]) -> Chart:
    """Set the given fields; `section_id` moves it to another section of the workspace."""
    changes = dict(changes)
    if "section_id" in changes:
        sections = Section.objects.for_workspace(chart.workspace_id)
        chart.section = get_or_404(sections, pk=changes.pop("section_id"))
    asked = {"series": chart.series, "common_filters": chart.common_filters} | changes
    for name, value in checked(asked, chart.workspace_id).items():
        setattr(chart, name, value)
    chart.save()
    return chart


def checked(fields: Mapping[str, Any], workspace_id: UUID | None = None) -> dict[str, Any]:
    """The fields with an id for each series; `Invalid` for what could never be computed."""
    series = [{"id": str(uuid7()), **_without_nulls(one)} for one in fields.get("series") or ()]
    common = _without_nulls(fields.get("common_filters") or {})
    if len(series) > MOST_SERIES:
        raise errors.Invalid(f"series: at most {MOST_SERIES}.")
    for one in series:
        series_of(one, Scope([], common, workspace_id=workspace_id), None)
    return {**fields, "series": series, "common_filters": common}


def _without_nulls(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


@transaction.atomic
def clone_section(*, section: Section) -> Section:
    """A copy with copies of its charts, after the others."""
    copied = create_section(
        workspace_id=section.workspace_id,
        title=f"{section.title[:190]} (copy)",
        description=section.description,
        index=section.index,
        project_id=section.project_id,
    )
    Chart.objects.for_workspace(section.workspace_id).bulk_create(
        [
            Chart(
                workspace_id=chart.workspace_id,
                section=copied,
                title=chart.title,
                description=chart.description,
                chart_type=chart.chart_type,
                index=chart.index,
                metadata=chart.metadata,
                common_filters=chart.common_filters,
                series=[{**one, "id": str(uuid7())} for one in chart.series],
            )
            for chart in section.charts.in_order()
        ]
    )
    return copied


@transaction.atomic
def clone_project_dashboard(*, project: Project) -> Section:
    """The project's own dashboard as a section whose charts can be changed."""
    section = create_section(
        workspace_id=project.workspace_id, title=f"{project.name[:190]}", project_id=project.pk
    )
    charts = [chart for _, _, made in project_dashboard(project) for chart in made]
    Chart.objects.for_workspace(project.workspace_id).bulk_create(
        [
            Chart(
                workspace_id=project.workspace_id,
                section=section,
                title=chart["title"][:200],
                chart_type=chart["chart_type"],
                index=at,
                common_filters=chart["common_filters"],
                series=[{**one, "id": str(uuid7())} for one in chart["series"]],
            )
            for at, chart in enumerate(charts)
        ]
    )
    return section


def project_dashboard(
    project: Project, since: datetime | None = None, until: datetime | None = None
) -> Sequence[tuple[UUID, str, list[dict[str, Any]]]]:
    """Id, title and charts of each part of the dashboard that the project has by itself."""
    by_key = score_stats.by_project_runs(
        project.workspace_id, [project.pk], started_from=since, started_until=until
    ).get(project.pk, {})
    keys = sorted(by_key, key=lambda key: (-by_key[key]["n"], key))
    return prebuilt.sub_sections(project.pk, {key: by_key[key]["avg"] is not None for key in keys})
