"""Chart cards: saved and prebuilt charts with their data, as the pages draw them.

Monitoring and dashboards draw the same cards. A card has a drawing for each unit of its lines, so
that no axis has two units, and every line that is left out is named in a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from apps.core.errors import AppError
from apps.monitoring.buckets import Stride
from apps.monitoring.models import Chart, ChartType
from apps.monitoring.services.chart_computer import ChartComputer, SeriesData, TimeRange
from apps.trace_store.filters import join_filters, quote
from apps.tracing.pages.periods import Period
from apps.web_ui.charts import (
    STATUS_HUES,
    UNIT_LABELS,
    Line,
    LineChart,
    format_value,
    line_style,
)
from apps.web_ui.formatting import format_date_time

_UNITS_BY_NAME_PART = (
    ("feedback_values", "count"),
    ("rate", "share"),
    ("latency", "s"),
    ("first_token", "s"),
    ("cost", "usd"),
    ("tokens", "tokens"),
    ("score", "score"),
    ("feedback", "score"),
)
TOP_ROWS = 10
"""The rows of a top list, by value."""
MAX_GROUPS = 100
"""The groups with the most runs, among which a top list looks for the largest values."""
_SUMMED_UNITS = {"count", "tokens", "usd"}
"""Units whose lines may be stacked."""
Values = Sequence[float | None]


@dataclass(frozen=True)
class ChartCard:
    """A chart with its data: `drawings` over time, or `values` of the whole period.

    A value has the name of its line and, if it is compared, the value of the previous period.
    """

    chart: Chart
    drawings: Sequence[LineChart] = ()
    values: Sequence[tuple[str, str, str]] = ()
    error_detail: str = ""
    note: str = ""

    @property
    def is_wide(self) -> bool:
        return self.chart.chart_type == ChartType.TEXT


@dataclass(frozen=True)
class _CardLine:
    """A line of a card: a group or a part of a series."""

    name: str
    unit: str
    values: Values
    href: str
    before: Values | None = None


def build_time_range(period: Period) -> TimeRange:
    start, end = period.limits
    return TimeRange.with_defaults(start=start, end=end, stride=Stride(duration=period.step))


def limit_charts(
    charts: Sequence[Chart], where: str, group_by: Mapping[str, Any] | None
) -> list[Chart]:
    """Return copies, not to be saved, of which each series has the filter and the grouping.

    `where` is a filter in the API's language. A series keeps a grouping of its own, and scores of
    feedback have none.
    """
    copies = []
    for chart in charts:
        limited = copy(chart)
        common = chart.common_filters or {}
        if where:
            text = join_filters([part for part in (common.get("filter"), where) if part])
            limited.common_filters = {**common, "filter": text}
        if group_by:
            limited.series = [_grouped(series, group_by) for series in chart.series]
        copies.append(limited)
    return copies


def _grouped(series: Mapping[str, Any], group_by: Mapping[str, Any]) -> Mapping[str, Any]:
    has_group = series.get("group_by") or series.get("group_by_definitions")
    is_feedback = series_unit(series) == "score" or "feedback" in str(series.get("metric", ""))
    return series if has_group or is_feedback else {**series, "group_by": dict(group_by)}


def build_chart_cards(
    computer: ChartComputer, charts: Sequence[Chart], *, compares: bool = False
) -> list[ChartCard]:
    """Compute the data of the charts, with shared queries where possible.

    With `compares`, each line over time has the values of the previous period.
    """
    previous = None
    if compares:
        previous = ChartComputer(computer.workspace_id, computer.time_range.previous)
    for part in filter(None, (computer, previous)):
        for chart in charts:
            with suppress(AppError):  # the card shows the error
                part.prepare([{"common_filters": chart.common_filters, "series": chart.series}])
    return [_CardBuilder(computer, previous, chart).build() for chart in charts]


@dataclass
class _CardBuilder:
    computer: ChartComputer
    previous: ChartComputer | None
    chart: Chart

    def build(self) -> ChartCard:
        chart, computer = self.chart, self.computer
        is_over_time = ChartType(chart.chart_type).is_over_time
        try:
            data = self._compute(computer, None)
            before = None
            if self.previous is not None:
                before = self._compute(self.previous, [list(item.values_by_group) for item in data])
        except AppError as error:
            return ChartCard(chart, error_detail=error.detail)
        lines = list(self._iterate_lines(data, before))
        if chart.chart_type == ChartType.TOP:
            lines.sort(key=_sort_key)
            lines = lines[:TOP_ROWS]
        if not is_over_time:
            return ChartCard(
                chart,
                values=[
                    (
                        line.name,
                        _format_last(line.values, line.unit),
                        "" if line.before is None else _format_last(line.before, line.unit),
                    )
                    for line in lines
                ],
                note=_groups_note(data),
            )
        edges = computer.time_range.edges(chart.chart_type)
        return ChartCard(chart, self._build_drawings(lines, edges, data))

    def _compute(
        self, computer: ChartComputer, groups: Sequence[Sequence[str | None]] | None
    ) -> list[SeriesData]:
        chart = self.chart
        series = chart.series
        if chart.chart_type == ChartType.TOP:
            # The largest value may be that of a group with few runs.
            series = [_widened(item) for item in series]
        return computer.compute_series(chart.chart_type, series, chart.common_filters, groups)

    def _iterate_lines(
        self, data: Sequence[SeriesData], before: Sequence[SeriesData] | None
    ) -> Iterator[_CardLine]:
        """Yield the lines of each group of each series."""
        for index, (series, item) in enumerate(zip(self.chart.series, data, strict=False)):
            series_name = str(series.get("name") or series.get("metric", ""))
            for group, values in item.values_by_group.items():
                name = series_name
                if group:
                    name = f"{series_name}: {group}" if len(self.chart.series) > 1 else group
                href = _runs_url(self.chart, series, group)
                values_before = before[index].values_by_group[group] if before else None
                for part in _iterate_parts(values, values_before, series_unit(series)):
                    suffix, unit, part_values, part_before = part
                    part_name = f"{name}: {suffix}" if suffix else name
                    yield _CardLine(part_name, unit, part_values, href, part_before)

    def _build_drawings(
        self, lines: Sequence[_CardLine], edges: Sequence[datetime], data: Sequence[SeriesData]
    ) -> list[LineChart]:
        """Return a drawing for each unit, in the order of the lines."""
        chart = self.chart
        units = list(dict.fromkeys(line.unit for line in lines)) or ["count"]
        since = max((item.counted_since for item in data if item.counted_since), default=None)
        drawings = []
        for number, unit in enumerate(units):
            drawn_lines = []
            for index, line in enumerate(line for line in lines if line.unit == unit):
                hue, dash = line_style(index)
                drawn_lines.append(
                    Line(
                        line.name,
                        STATUS_HUES.get(line.name.lower(), hue),
                        line.values,
                        line.href,
                        line.before,
                        dash,
                    )
                )
            is_stack = chart.chart_type == ChartType.BAR and self.previous is None
            label = UNIT_LABELS.get(unit, unit)
            drawings.append(
                LineChart(
                    f"chart-{chart.pk}" + (f"-{number}" if number else ""),
                    f"{chart.title}: {label}" if len(units) > 1 else chart.title,
                    unit,
                    _drawing_kind(unit, len(drawn_lines)) if is_stack else "line",
                    edges,
                    drawn_lines,
                    _runs_url(chart, {}),
                    note=f"since {format_date_time(since)}" if since else "",
                    groups_note=_groups_note(data),
                )
            )
        return drawings


def _widened(series: Mapping[str, Any]) -> Mapping[str, Any]:
    group_by = series.get("group_by")
    return {**series, "group_by": {**group_by, "max_groups": MAX_GROUPS}} if group_by else series


def _sort_key(line: _CardLine) -> tuple[bool, float]:
    value = line.values[-1] if line.values else None
    return value is None, -(value or 0)


def _format_last(values: Values, unit: str) -> str:
    return format_value(values[-1] if values else None, unit)


def _drawing_kind(unit: str, line_count: int) -> str:
    """Return how a bar chart is drawn: only lines of sums are stacked."""
    if unit in _SUMMED_UNITS:
        return "stack"
    return "bars" if line_count == 1 else "line"


def _groups_note(data: Sequence[SeriesData]) -> str:
    """Return which groups are shown, if it is not all of them."""
    limited = [item for item in data if item.group_count > len(item.values_by_group)]
    if not limited:
        return ""
    item = max(limited, key=lambda item: item.group_count)
    return f"the {len(item.values_by_group)} largest of {item.group_count}"


def _iterate_parts(
    values: Sequence[Any], before: Sequence[Any] | None, unit: str
) -> Iterator[tuple[str, str, Values, Values | None]]:
    """Yield name, unit and values of each line of the values.

    A line for numbers; for feedback, which has no single number, one for each categorical value
    and, if there are scores, one for their average.
    """
    all_values = [*values, *(before or ())]
    if not any(isinstance(value, Mapping) for value in all_values):
        yield "", unit, _to_floats(values), None if before is None else _to_floats(before)
        return
    has_average = any("avg" in value for value in all_values if isinstance(value, Mapping))
    if has_average:
        yield (
            "",
            "score",
            _to_floats(map(_read_average, values)),
            None if before is None else _to_floats(map(_read_average, before)),
        )
    categories = {
        name: None
        for value in all_values
        if isinstance(value, Mapping)
        for name in _read_categories(value)
    }
    for name in sorted(categories):
        yield (
            name,
            "count",
            [_count_category(value, name) for value in values],
            None if before is None else [_count_category(value, name) for value in before],
        )


def _read_average(value: Any) -> Any:
    return value.get("avg") if isinstance(value, Mapping) else value


def _read_categories(value: Any) -> Mapping[str, Any]:
    """Return the counts of the categorical values of `feedback` or `feedback_values`."""
    if not isinstance(value, Mapping):
        return {}
    counts: Mapping[str, Any] = value.get("values") or {} if "avg" in value else value
    return counts


def _count_category(value: Any, name: str) -> float:
    return float(_read_categories(value).get(name) or 0)


def _to_floats(values: Iterable[Any]) -> list[float | None]:
    return [_to_float(value) for value in values]


def _to_float(value: Any) -> float | None:
    try:
        return None if value is None else float(Decimal(str(value)))
    except ArithmeticError:
        return None


def series_unit(series: Mapping[str, Any]) -> str:
    """Return the unit of a series; that of a ratio of two units is "usd/tokens"."""
    definition = series.get("metric_definition") or {}
    if definition:
        return _definition_unit(definition)
    return _unit_by_name(str(series.get("metric") or ""))


def _definition_unit(definition: Mapping[str, Any]) -> str:
    if definition.get("type") == "count":
        return "count"
    if definition.get("type") == "ratio":
        above = _definition_unit(definition.get("numerator") or {})
        below = _definition_unit(definition.get("denominator") or {})
        if above == below:
            return "share"
        return above if below == "count" else f"{above}/{below}"
    return _unit_by_name(str(definition.get("field") or ""))


def _unit_by_name(name: str) -> str:
    return next((unit for part, unit in _UNITS_BY_NAME_PART if part in name), "count")


def _runs_url(chart: Chart, series: Mapping[str, Any], group: str | None = None) -> str:
    """Return the URL of the runs behind a line, or "" unless they belong to one project."""
    common = chart.common_filters or {}
    projects = common.get("session") or []
    if len(projects) != 1:
        return ""
    filters = (common.get("filter"), *_series_filters(series), _group_clause(series, group))
    text = join_filters([part for part in filters if part])
    url = reverse("project-detail", args=[chart.workspace_id, projects[0]])
    return f"{url}?{urlencode({'show': 'all'} | ({'filter': text} if text else {}))}"


def _series_filters(series: Mapping[str, Any]) -> tuple[str | None, str | None]:
    definition = series.get("metric_definition") or {}
    return (series.get("filters") or {}).get("filter"), definition.get("filter")


def _group_clause(series: Mapping[str, Any], group: str | None) -> str:
    """Return the filter clause of a group; "" without a group or if no clause selects it."""
    definitions: Sequence[Mapping[str, Any]] = series.get("group_by_definitions") or ()
    group_by: Mapping[str, Any] = series.get("group_by") or (definitions[0] if definitions else {})
    if group is None:
        return ""
    value = quote(group)
    match group_by.get("attribute"):
        case "tag":
            return f"has(tags, {value})"
        case "metadata":
            key = quote(str(group_by.get("path") or ""))
            return f"and(eq(metadata_key, {key}), eq(metadata_value, {value}))"
        case "name" | "model" | "status" | "run_type" as attribute:
            return f"eq({attribute}, {value})"
    return ""
