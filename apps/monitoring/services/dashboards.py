"""List, create, update and copy dashboards and their charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Max

from apps.core import errors
from apps.core.ids import uuid7
from apps.core.tenancy import check_row_limit, get_or_404
from apps.feedback.services import score_stats
from apps.monitoring import prebuilt
from apps.monitoring.models import MAX_COLUMNS, Chart, OrganizationSection, Section
from apps.monitoring.prebuilt import SubSection
from apps.monitoring.series import ChartScope, parse_series
from apps.monitoring.services.chart_computer import MAX_SERIES
from apps.organizations.models import ResourceType
from apps.organizations.services import tags
from apps.tracing.models import Project

SectionT = TypeVar("SectionT", Section, OrganizationSection)
MAX_SECTIONS = 200
MAX_CHARTS = 200
DEFAULT_TITLE = "Custom charts"


def list_sections_with_chart_counts(workspace_id: UUID) -> list[tuple[Section, int]]:
    """Return the dashboards, each with its number of charts."""
    sections = list(Section.objects.for_workspace(workspace_id).in_order()[:MAX_SECTIONS])
    charts = Chart.objects.for_workspace(workspace_id).filter(section__in=sections)
    counts = Counter(charts.values_list("section_id", flat=True))
    return [(section, counts[section.pk]) for section in sections]


@transaction.atomic
def create_section(*, workspace_id: UUID, title: str, **fields: Any) -> Section:
    section = Section(workspace_id=workspace_id, title=title, **fields)
    section.save(force_insert=True)
    sections = Section.objects.for_workspace(workspace_id)
    check_row_limit(sections, MAX_SECTIONS, "dashboards of a workspace")
    return section


def update_section(*, section: SectionT, changes: Mapping[str, Any]) -> SectionT:
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
    """Create a chart in the section, by default in the first section of the workspace.

    Raises `Invalid` for an invalid series.
    """
    sections = Section.objects.for_workspace(workspace_id)
    if section_id is None:
        section = sections.filter(project_id=None).in_order().first()
        section = section or create_section(workspace_id=workspace_id, title=DEFAULT_TITLE)
    else:
        section = get_or_404(sections, pk=section_id)
    if section.charts.count() >= MAX_CHARTS:
        raise errors.Invalid(f"section_id: a section has at most {MAX_CHARTS} charts.")
    last = section.charts.aggregate(last=Max("index"))["last"]
    fields.setdefault("index", 0 if last is None else last + 1)
    chart = Chart(
        workspace_id=workspace_id, section=section, **validate_chart_fields(fields, workspace_id)
    )
    chart.save(force_insert=True)
    return chart


def update_chart(*, chart: Chart, changes: Mapping[str, Any]) -> Chart:
    """Set the changed fields; `section_id` moves the chart to another section."""
    changes = dict(changes)
    if "section_id" in changes:
        sections = Section.objects.for_workspace(chart.workspace_id)
        chart.section = get_or_404(sections, pk=changes.pop("section_id"))
    fields = {"series": chart.series, "common_filters": chart.common_filters} | changes
    for name, value in validate_chart_fields(fields, chart.workspace_id).items():
        setattr(chart, name, value)
    chart.save()
    return chart


@transaction.atomic
def arrange_charts(*, section: Section, layout: Sequence[tuple[UUID, int]]) -> None:
    """Put the charts in this order, each with its width in columns.

    Charts that are not listed, for example those added meanwhile, follow in their order. Safe to
    repeat. Raises `Invalid` for a repeated chart or a width out of range, `NotFound` for a chart
    that is not in the section.
    """
    if len({chart_id for chart_id, _ in layout}) < len(layout):
        raise errors.Invalid("chart: a chart is listed twice.")
    if not all(1 <= columns <= MAX_COLUMNS for _, columns in layout):
        raise errors.Invalid(f"columns: must be from 1 to {MAX_COLUMNS}.")
    # Lock the section first, so that concurrent arrangements do not mix.
    Section.objects.for_workspace(section.workspace_id).select_for_update(no_key=True).get(
        pk=section.pk
    )
    charts = {chart.pk: chart for chart in section.charts.in_order()}
    if not {chart_id for chart_id, _ in layout} <= charts.keys():
        raise errors.NotFound("chart: not in this dashboard.")
    for chart_id, columns in layout:
        charts[chart_id].columns = columns
    order = dict.fromkeys([chart_id for chart_id, _ in layout] + list(charts))
    for index, chart_id in enumerate(order):
        charts[chart_id].index = index
    Chart.objects.for_workspace(section.workspace_id).bulk_update(
        charts.values(), ["index", "columns"]
    )


def move_chart(*, chart: Chart, position: int) -> None:
    """Move the chart to a position of its section, counted from 1; the others keep their order."""
    rest = [other for other in chart.section.charts.in_order() if other.pk != chart.pk]
    rest.insert(max(position, 1) - 1, chart)
    layout = [(other.pk, other.columns) for other in rest]
    arrange_charts(section=chart.section, layout=layout)


def validate_chart_fields(
    fields: Mapping[str, Any], workspace_id: UUID | None = None
) -> dict[str, Any]:
    """Return the fields with an id for each series. Raises `Invalid` for an invalid series."""
    all_series = [
        {"id": str(uuid7()), **_without_nulls(series)} for series in fields.get("series") or ()
    ]
    common = _without_nulls(fields.get("common_filters") or {})
    if len(all_series) > MAX_SERIES:
        raise errors.Invalid(f"series: a chart has at most {MAX_SERIES}.")
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
    charts = list(section.charts.in_order())
    for chart in charts:
        chart.pk, chart.section, chart.series = uuid7(), copy, with_new_ids(chart.series)
    Chart.objects.for_workspace(section.workspace_id).bulk_create(charts)
    return copy


@transaction.atomic
def clone_project_dashboard(
    *,
    project: Project,
    group_by: Mapping[str, Any] | None = None,
    feedback_since: datetime | None = None,
    feedback_until: datetime | None = None,
) -> Section:
    """Copy the prebuilt dashboard of the project, grouped or not, into an editable section."""
    section = create_section(
        workspace_id=project.workspace_id, title=project.name[:190], project_id=project.pk
    )
    sub_sections = project_dashboard(project, feedback_since, feedback_until, group_by=group_by)
    Chart.objects.for_workspace(project.workspace_id).bulk_create(
        Chart(workspace_id=project.workspace_id, section=section, **fields)
        for fields in prebuilt_chart_fields(sub_sections)
    )
    return section


def prebuilt_chart_fields(
    sub_sections: Sequence[SubSection], **series_fields: Any
) -> list[dict[str, Any]]:
    """Return the fields of the prebuilt charts in order; each series gets `series_fields`."""
    charts = [chart for part in sub_sections for chart in part.charts]
    return [
        {
            "title": chart["title"][:200],
            "chart_type": chart["chart_type"],
            "index": index,
            "common_filters": chart["common_filters"],
            "series": with_new_ids(chart["series"], **series_fields),
        }
        for index, chart in enumerate(charts)
    ]


def project_dashboard(
    project: Project,
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    group_by: Mapping[str, Any] | None = None,
) -> Sequence[SubSection]:
    """Return the project's prebuilt dashboard, with the feedback keys of the time range."""
    stats_by_key = score_stats.by_project_runs(
        project.workspace_id, [project.pk], started_from=start, started_until=end
    ).get(project.pk, {})
    keys = sorted(stats_by_key, key=lambda key: (-stats_by_key[key]["n"], key))
    return prebuilt.build_sub_sections(
        project.pk, {key: stats_by_key[key]["avg"] is not None for key in keys}, group_by
    )
