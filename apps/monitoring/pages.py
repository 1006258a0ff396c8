"""What the pages of dashboards show."""

from __future__ import annotations

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
from apps.monitoring.services.computing import Computer, Frame
from apps.tracing.pages import clauses
from apps.tracing.pages.periods import Period
from apps.web_ui.charts import HUES, Line, said
from apps.web_ui.charts import Chart as Drawing

MOST_LINES = 6
_HUES_OF = {"Error": "error", "error": "error"}
"""A status keeps its own colour, whatever place it has."""
_UNITS = (
    ("rate", "share"),
    ("latency", "s"),
    ("first_token", "s"),
    ("cost", "usd"),
    ("tokens", "tokens"),
    ("score", "score"),
    ("feedback", "score"),
)


@dataclass(frozen=True)
class Shown:
    """A chart with its figures: drawn over time, or one value a line for the whole time."""

    chart: Chart
    drawing: Drawing | None = None
    values: Sequence[tuple[str, str]] = ()
    problem: str = ""

    @property
    def is_wide(self) -> bool:
        return self.chart.chart_type == ChartType.TEXT


def sections(workspace_id: UUID) -> list[tuple[Section, int]]:
    """The dashboards, each with the number of its charts."""
    rows = list(Section.objects.for_workspace(workspace_id).in_order()[:200])
    counts: dict[UUID, int] = {}
    of = Chart.objects.for_workspace(workspace_id).filter(section__in=rows)
    for section_id in of.values_list("section_id", flat=True):
        counts[section_id] = counts.get(section_id, 0) + 1
    return [(row, counts.get(row.pk, 0)) for row in rows]


def frame_of(period: Period) -> Frame:
    start, end = period.limits
    return Frame.of(start=start, end=end, stride=Stride(rest=period.step))


def shown(workspace_id: UUID, charts: Sequence[Chart], period: Period) -> list[Shown]:
    """The charts with their figures; those that ask the same are computed once."""
    computer = Computer(workspace_id, frame_of(period))
    for chart in charts:
        with suppress(AppError):  # which its own place on the page tells
            computer.prepare([{"common_filters": chart.common_filters, "series": chart.series}])
    return [one_shown(computer, chart) for chart in charts]


def one_shown(computer: Computer, chart: Chart) -> Shown:
    try:
        points = computer.points(chart.chart_type, chart.series, chart.common_filters)
    except AppError as error:
        return Shown(chart, problem=error.detail)
    unit = _unit(chart.series)
    lines = _lines(chart, points)
    if not ChartType(chart.chart_type).is_over_time:
        return Shown(chart, values=[(name, said(_last(values), unit)) for name, values in lines])
    kind = "stack" if chart.chart_type == ChartType.BAR else "line"
    behind = {one.get("name") or one.get("metric", ""): _behind(chart, one) for one in chart.series}
    drawn = [
        Line(name, _HUES_OF.get(name, hue), values, behind.get(name, ""))
        for (name, values), hue in zip(lines[:MOST_LINES], HUES, strict=False)
    ]
    edges = computer.frame.edges(chart.chart_type)
    drawing = Drawing(
        f"chart-{chart.pk}", chart.title, unit, kind, edges, drawn, _behind(chart, {})
    )
    return Shown(chart, drawing)


def _behind(chart: Chart, series: Mapping[str, Any]) -> str:
    """The list of the runs that a line is about, when they are of one project."""
    common = chart.common_filters or {}
    projects = common.get("session") or []
    if len(projects) != 1 or not chart.section_id:
        return ""
    own = (series.get("filters") or {}).get("filter")
    own = own or (series.get("metric_definition") or {}).get("filter")
    text = clauses.join([one for one in (common.get("filter"), own) if one])
    address = reverse("project-detail", args=[chart.workspace_id, projects[0]])
    return f"{address}?{urlencode({'show': 'all'} | ({'filter': text} if text else {}))}"


def _lines(
    chart: Chart, points: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[float | None]]]:
    """A line for each series, and in it for each group."""
    names = {one.get("id"): one.get("name") or one.get("metric", "") for one in chart.series}
    found: dict[tuple[str, str | None], list[float | None]] = {}
    for point in points:
        key = (point["series_id"], point["group"])
        found.setdefault(key, []).append(_number(point["value"]))
    several = len(chart.series) > 1
    return [
        (f"{names.get(one)}: {group}" if group and several else group or str(names.get(one)), line)
        for (one, group), line in found.items()
    ]


def _number(value: Any) -> float | None:
    if isinstance(value, dict):
        return float(sum(value.values()))
    try:
        return None if value is None else float(Decimal(str(value)))
    except ArithmeticError:
        return None


def _last(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _unit(series: Sequence[Mapping[str, Any]]) -> str:
    """From the first series: all of one chart share an axis."""
    first = series[0] if series else {}
    definition = first.get("metric_definition") or {}
    if definition.get("type") == "count":
        return "count"
    if definition.get("type") == "ratio":
        return "share"
    name = str(definition.get("field") or first.get("metric") or "")
    return next((unit for word, unit in _UNITS if word in name), "count")
