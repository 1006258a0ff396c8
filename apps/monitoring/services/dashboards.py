"""Create, update and copy dashboards and their charts."""

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
from apps.monitoring.series import ChartScope, parse_series
from apps.monitoring.services.chart_computer import MAX_SERIES
from apps.organizations.models import ResourceType
from apps.organizations.services import tags
from apps.tracing.models import Project

S = TypeVar("S", Section, OrganizationSection)
MAX_CHARTS = 200
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
    """Delete the section with its charts and taggings."""
    tags.delete_taggings(
        workspace_id=section.workspace_id,
        resource_type=ResourceType.DASHBOARD,
        resource_id=section.pk,
    )
    section.delete()


@transaction.atomic
def create_chart(*, workspace_id: UUID, section_id: UUID | None, **fields: Any) -> Chart:
    """Create a chart in the section, by default the first of the workspace.

    Raises `Invalid` for an invalid series.
    """
    sections = Section.objects.for_workspace(workspace_id)
    if section_id is None:
        section = sections.filter(project_id=None).in_order().first()
        section = section or create_section(workspace_id=workspace_id, title=DEFAULT_TITLE)
    else:
        section = get_or_404(sections, pk=section_id)
    if section.charts.count() >= MAX_CHARTS:
        raise errors.Invalid(f"A section has at most {MAX_CHARTS} charts.")
    chart = Chart(
        workspace_id=workspace_id, section=section, **validate_chart_fields(fields, workspace_id)
    )
    chart.save(force_insert=True)
    return chart


def update_chart(*, chart: Chart, changes: Mapping[str, Any]) -> Chart:
    """Set the given fields; `section_id` moves it to another section of the workspace."""
    changes = dict(changes)
    if "section_id" in changes:
        sections = Section.objects.for_workspace(chart.workspace_id)
        chart.section = get_or_404(sections, pk=changes.pop("section_id"))
    fields = {"series": chart.series, "common_filters": chart.common_filters} | changes
    for name, value in validate_chart_fields(fields, chart.workspace_id).items():
        setattr(chart, name, value)
    chart.save()
    return chart


def validate_chart_fields(
    fields: Mapping[str, Any], workspace_id: UUID | None = None
) -> dict[str, Any]:
    """Return the fields with an id for each series. Raises `Invalid` for an invalid series."""
    all_series = [
        {"id": str(uuid7()), **_without_nulls(series)} for series in fields.get("series") or ()
    ]
    common = _without_nulls(fields.get("common_filters") or {})
    if len(all_series) > MAX_SERIES:
        raise errors.Invalid(f"series: at most {MAX_SERIES}.")
    for series in all_series:
        parse_series(series, ChartScope([], common, workspace_id=workspace_id), None)
    return {**fields, "series": all_series, "common_filters": common}


def with_new_ids(all_series: Sequence[Mapping[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    return [{**series, "id": str(uuid7()), **fields} for series in all_series]


def _without_nulls(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value is not None}


@transaction.atomic
def clone_section(*, section: Section) -> Section:
    """Copy the section and its charts."""
    copy = create_section(
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
                section=copy,
                title=chart.title,
                description=chart.description,
                chart_type=chart.chart_type,
                index=chart.index,
                metadata=chart.metadata,
                common_filters=chart.common_filters,
                series=with_new_ids(chart.series),
            )
            for chart in section.charts.in_order()
        ]
    )
    return copy


@transaction.atomic
def clone_project_dashboard(*, project: Project) -> Section:
    """Copy the prebuilt dashboard of the project into an editable section."""
    section = create_section(
        workspace_id=project.workspace_id, title=f"{project.name[:190]}", project_id=project.pk
    )
    charts = [chart for _, _, part in project_dashboard(project) for chart in part]
    Chart.objects.for_workspace(project.workspace_id).bulk_create(
        [
            Chart(
                workspace_id=project.workspace_id,
                section=section,
                title=chart["title"][:200],
                chart_type=chart["chart_type"],
                index=index,
                common_filters=chart["common_filters"],
                series=with_new_ids(chart["series"]),
            )
            for index, chart in enumerate(charts)
        ]
    )
    return section


def project_dashboard(
    project: Project, since: datetime | None = None, until: datetime | None = None
) -> Sequence[tuple[UUID, str, list[dict[str, Any]]]]:
    """Return id, title and charts of each part of the project's prebuilt dashboard."""
    by_key = score_stats.by_project_runs(
        project.workspace_id, [project.pk], started_from=since, started_until=until
    ).get(project.pk, {})
    keys = sorted(by_key, key=lambda key: (-by_key[key]["n"], key))
    return prebuilt.build_sub_sections(
        project.pk, {key: by_key[key]["avg"] is not None for key in keys}
    )
