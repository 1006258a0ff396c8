"""Context of the dashboard pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from apps.core.errors import AppError
from apps.monitoring.buckets import Stride
from apps.monitoring.models import Chart, ChartType, Section
from apps.monitoring.services.chart_computer import ChartComputer, TimeRange
from apps.tracing.pages import filter_clauses
from apps.tracing.pages.periods import Period
from apps.web_ui.charts import HUES, Line, format_value
from apps.web_ui.charts import Chart as Drawing

MAX_SECTIONS = 200
MAX_LINES = 6
_STATUS_HUES = {"Error": "error", "error": "error"}
"""A line of a status has the colour of the status at any position."""
_UNITS_BY_NAME_PART = (
    ("rate", "share"),
    ("latency", "s"),
    ("first_token", "s"),
    ("cost", "usd"),
    ("tokens", "tokens"),
    ("score", "score"),
    ("feedback", "score"),
)


@dataclass(frozen=True)
class ChartCard:
    """A chart with its data: `drawing` over time, or `values` with one total per line."""

    chart: Chart
    drawing: Drawing | None = None
    values: Sequence[tuple[str, str]] = ()
    problem: str = ""

    @property
    def is_wide(self) -> bool:
        return self.chart.chart_type == ChartType.TEXT


def sections_with_chart_count(workspace_id: UUID) -> list[tuple[Section, int]]:
    """Return the dashboards, each with its number of charts."""
    sections = list(Section.objects.for_workspace(workspace_id).in_order()[:MAX_SECTIONS])
    charts = Chart.objects.for_workspace(workspace_id).filter(section__in=sections)
    counts = Counter(charts.values_list("section_id", flat=True))
    return [(section, counts[section.pk]) for section in sections]


def time_range_of(period: Period) -> TimeRange:
    start, end = period.limits
    return TimeRange.with_defaults(start=start, end=end, stride=Stride(rest=period.step))


def build_chart_cards(
    workspace_id: UUID, charts: Sequence[Chart], period: Period
) -> list[ChartCard]:
    """Compute the data of the charts, with shared queries where possible."""
    computer = ChartComputer(workspace_id, time_range_of(period))
    for chart in charts:
        with suppress(AppError):  # `build_chart_card` shows the error
            computer.prepare([{"common_filters": chart.common_filters, "series": chart.series}])
    return [build_chart_card(computer, chart) for chart in charts]


def build_chart_card(computer: ChartComputer, chart: Chart) -> ChartCard:
    try:
        points = computer.points(chart.chart_type, chart.series, chart.common_filters)
    except AppError as error:
        return ChartCard(chart, problem=error.detail)
    unit = _unit(chart.series)
    lines = _lines(chart, points)
    if not ChartType(chart.chart_type).is_over_time:
        return ChartCard(
            chart,
            values=[(name, format_value(_last_value(values), unit)) for name, values in lines],
        )
    kind = "stack" if chart.chart_type == ChartType.BAR else "line"
    urls = {_name(series): _runs_url(chart, series) for series in chart.series}
    drawn_lines = [
        Line(name, _STATUS_HUES.get(name, hue), values, urls.get(name, ""))
        for (name, values), hue in zip(lines[:MAX_LINES], HUES, strict=False)
    ]
    edges = computer.time_range.edges(chart.chart_type)
    drawing = Drawing(
        f"chart-{chart.pk}", chart.title, unit, kind, edges, drawn_lines, _runs_url(chart, {})
    )
    return ChartCard(chart, drawing)


def _runs_url(chart: Chart, series: Mapping[str, Any]) -> str:
    """Return the URL of the runs behind a line, or "" unless they belong to one project."""
    common = chart.common_filters or {}
    projects = common.get("session") or []
    if len(projects) != 1 or not chart.section_id:
        return ""
    series_filter = (series.get("filters") or {}).get("filter")
    series_filter = series_filter or (series.get("metric_definition") or {}).get("filter")
    text = filter_clauses.join_clauses(
        [part for part in (common.get("filter"), series_filter) if part]
    )
    url = reverse("project-detail", args=[chart.workspace_id, projects[0]])
    return f"{url}?{urlencode({'show': 'all'} | ({'filter': text} if text else {}))}"


def _name(series: Mapping[str, Any]) -> str:
    return str(series.get("name") or series.get("metric", ""))


def _lines(
    chart: Chart, points: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[float | None]]]:
    """Return name and values of a line for each group of each series."""
    names = {series.get("id"): _name(series) for series in chart.series}
    values_by_key: dict[tuple[str, str | None], list[float | None]] = {}
    for point in points:
        key = (point["series_id"], point["group"])
        values_by_key.setdefault(key, []).append(_number(point["value"]))
    lines = []
    for (series_id, group), values in values_by_key.items():
        name = str(names.get(series_id))
        if group:
            name = f"{name}: {group}" if len(chart.series) > 1 else group
        lines.append((name, values))
    return lines


def _number(value: Any) -> float | None:
    if isinstance(value, dict):
        return float(sum(value.values()))
    try:
        return None if value is None else float(Decimal(str(value)))
    except ArithmeticError:
        return None


def _last_value(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _unit(series: Sequence[Mapping[str, Any]]) -> str:
    """Return the unit of the first series; all series of a chart share an axis."""
    first = series[0] if series else {}
    definition = first.get("metric_definition") or {}
    if definition.get("type") == "count":
        return "count"
    if definition.get("type") == "ratio":
        return "share"
    name = str(definition.get("field") or first.get("metric") or "")
    return next((unit for part, unit in _UNITS_BY_NAME_PART if part in name), "count")
