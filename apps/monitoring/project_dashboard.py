"""The Monitoring page of a project: its prebuilt charts, as a copy to a dashboard shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from apps.monitoring.chart_cards import (
    ChartCard,
    build_chart_cards,
    build_time_range,
    limit_charts,
)
from apps.monitoring.models import Chart
from apps.monitoring.services import dashboards
from apps.monitoring.services.chart_computer import ChartComputer, TimeRange
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import MetricsQuery, MetricsResult
from apps.trace_store.filters import formatting
from apps.trace_store.filters.query_text import MAX_QUERY_LENGTH
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.models import Project
from apps.tracing.pages import periods, query_clauses
from apps.tracing.pages.periods import Period
from apps.tracing.pages.query_clauses import QueryProblem
from apps.web_ui.charts import format_value

GROUP_ATTRIBUTES = {
    "": "None",
    "name": "Name",
    "model": "Model",
    "status": "Status",
    "tag": "Tag",
    "metadata": "Metadata",
}
MAX_GROUPS = 5
MAX_PATH_LENGTH = 200
_PAGE_TITLES = {
    "LLM Calls": "LLM calls",
    "Cost & Tokens": "Cost and tokens",
    "Run Types": "Run types",
    "Feedback Scores": "Feedback scores",
}
"""The API's section titles as the page writes them."""
Value = Callable[[RunMetrics], float | None]


@dataclass(frozen=True)
class DashboardState:
    """The dashboard's state in the query parameters."""

    period: Period
    group: str = ""
    path: str = ""
    compares: bool = False
    query: str = ""
    """A query of the query bar's language that limits the runs of all charts."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> DashboardState:
        group = params.get("group", "")
        path = params.get("path", "").strip()[:MAX_PATH_LENGTH]
        is_valid = group in GROUP_ATTRIBUTES and (group != "metadata" or path)
        return cls(
            periods.read_period(params),
            group if is_valid else "",
            path,
            "compare" in params,
            params.get("query", "").strip()[:MAX_QUERY_LENGTH],
        )

    @property
    def where(self) -> str:
        """Return the query as a filter in the API's language; an invalid one is not applied."""
        if self.problem is not None:
            return ""
        expression = query_clauses.parse(self.query).expression
        return "" if expression is None else formatting.format_filter(expression)

    @property
    def problem(self) -> QueryProblem | None:
        error = query_clauses.parse_error(self.query)
        return None if error is None else query_clauses.locate_problem(error, self.query)

    @property
    def parameters(self) -> dict[str, str]:
        data = {
            "group": self.group,
            "path": self.path if self.group == "metadata" else "",
            "compare": "1" if self.compares else "",
            "query": self.query,
        }
        return {name: value for name, value in data.items() if value}

    @property
    def hidden(self) -> list[tuple[str, str]]:
        return list(self.parameters.items())

    @property
    def period_hidden(self) -> list[tuple[str, str]]:
        return list(self.period.parameters.items())

    @property
    def presets(self) -> list[tuple[str, str, str]]:
        results = []
        for key, (label, _) in periods.PRESETS.items():
            data = self.parameters | ({} if key == periods.DEFAULT_PRESET else {"range": key})
            results.append((key, label, f"?{urlencode(data)}"))
        return results

    @property
    def group_by(self) -> dict[str, Any] | None:
        """Return the grouping in the JSON format of the API."""
        if not self.group:
            return None
        path = {"path": self.path} if self.group == "metadata" else {}
        return {"attribute": self.group, **path, "max_groups": MAX_GROUPS}

    @property
    def group_label(self) -> str:
        """Name the attribute of the grouping if runs may be without it."""
        match self.group:
            case "metadata":
                return f"the metadata key {self.path}"
            case "model" | "tag":
                return f"a {self.group}"
        return ""


@dataclass(frozen=True)
class MetricTile:
    """A metric over the period, compared with the previous period."""

    name: str
    value: str
    change: str = ""
    is_better: bool | None = None


@dataclass(frozen=True)
class CardSection:
    title: str
    cards: Sequence[ChartCard]
    note: str = ""


@dataclass(frozen=True)
class Dashboard:
    tiles: Sequence[MetricTile]
    sections: Sequence[CardSection]
    counted_since: datetime | None = None


def _quantile(measure: Measure, share: float) -> Value:
    def value(metrics: RunMetrics) -> float | None:
        result = metrics.quantile(measure, share)
        return None if result is None else float(result)

    return value


def _total(measure: Measure) -> Value:
    def value(metrics: RunMetrics) -> float | None:
        result = metrics.total(measure)
        return None if result is None else float(result)

    return value


M = Measure
TILES: tuple[tuple[str, str, Value, int], ...] = (
    ("Traces", "count", lambda metrics: metrics.runs, 0),
    ("Error rate", "share", lambda metrics: metrics.error_rate, -1),
    ("Latency p50", "s", _quantile(M.LATENCY, 0.5), -1),
    ("Latency p99", "s", _quantile(M.LATENCY, 0.99), -1),
    ("Tokens", "tokens", _total(M.TOTAL_TOKENS), 0),
    ("Cost", "usd", _total(M.TOTAL_COST), 0),
)
"""Name, unit, value and direction: more is better (1), worse (-1) or neutral (0)."""


def load_dashboard(project: Project, state: DashboardState) -> Dashboard:
    """Load the charts of the project; charts of the same runs share a query of the run store."""
    time_range = build_time_range(state.period)
    parts = dashboards.project_dashboard(
        project, time_range.start, time_range.end, group_by=state.group_by
    )
    charts = [_unsaved_chart(project, fields) for part in parts for fields in part.charts]
    charts = limit_charts(charts, state.where, None)  # they are grouped already
    computer = ChartComputer(project.workspace_id, time_range)
    cards = iter(build_chart_cards(computer, charts, compares=state.compares))
    now = _query_traces(project, time_range, state.where)
    before = _query_traces(project, time_range.previous, state.where)
    return Dashboard(
        [_build_tile(spec, now.overall, before.overall) for spec in TILES],
        [
            CardSection(
                _PAGE_TITLES.get(part.title, part.title),
                [next(cards) for _ in part.charts],
                part.note,
            )
            for part in parts
            if part.charts
        ],
        now.counted_since,
    )


def _unsaved_chart(project: Project, fields: Mapping[str, Any]) -> Chart:
    names = ("title", "chart_type", "common_filters", "series")
    return Chart(
        pk=fields["id"],
        workspace_id=project.workspace_id,
        **{name: fields[name] for name in names},
    )


def _query_traces(project: Project, time_range: TimeRange, where: str) -> MetricsResult:
    """Return the metrics of the traces in the time range, not grouped."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True,
        started_from=time_range.start - time_range.shift,
        started_until=time_range.end - time_range.shift,
        where=filters.parse(where) if where else None,
    )
    measures = (M.LATENCY, M.TOTAL_TOKENS, M.TOTAL_COST)
    return run_store.aggregate(
        project.workspace_id, MetricsQuery(query=query, measures=measures, quantiles=(0.5, 0.99))
    )


def _build_tile(
    spec: tuple[str, str, Value, int], now: RunMetrics, before: RunMetrics
) -> MetricTile:
    name, unit, value, direction = spec
    current, previous = value(now), value(before)
    if current is None or not previous:
        return MetricTile(name, format_value(current, unit))
    change = current / previous - 1
    if abs(change) < 0.005:
        return MetricTile(name, format_value(current, unit), "no change")
    text = f"{'+' if change > 0 else '−'}{abs(change) * 100:.0f} %"  # noqa: RUF001  (a minus sign)
    is_better = None if not direction else (change > 0) == (direction > 0)
    return MetricTile(name, format_value(current, unit), text, is_better)
