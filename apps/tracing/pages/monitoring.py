"""The prebuilt dashboard of a project: volume, latency, errors, tokens, cost, feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode

from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.models import Project
from apps.tracing.pages import filter_clauses, periods
from apps.tracing.pages.periods import Period
from apps.web_ui.charts import HUES, Chart, Line, edges, format_value

GROUP_ATTRIBUTES = {
    "": "None",
    "name": "Name",
    "model": "Model",
    "status": "Status",
    "tag": "Tag",
    "metadata": "Metadata",
}
MAX_GROUPS = 5
Value = Callable[[RunMetrics], float | None]


@dataclass(frozen=True)
class DashboardState:
    """The dashboard's state in the query parameters."""

    period: Period
    group: str
    path: str
    compares: bool

    @classmethod
    def read(cls, params: Mapping[str, str]) -> DashboardState:
        group = params.get("group", "")
        path = params.get("path", "").strip()[:200]
        known = group in GROUP_ATTRIBUTES and (group != "metadata" or path)
        return cls(periods.read_period(params), group if known else "", path, "compare" in params)

    @property
    def parameters(self) -> dict[str, str]:
        data = {
            "group": self.group,
            "path": self.path if self.group == "metadata" else "",
            "compare": "1" if self.compares else "",
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
    def group_by(self) -> GroupBy | None:
        if not self.group:
            return None
        return GroupBy(GroupAttribute(self.group), path=self.path, max_groups=MAX_GROUPS)


@dataclass(frozen=True)
class MetricTile:
    """A metric over the period, compared with the previous period."""

    name: str
    value: str
    change: str = ""
    is_better: bool | None = None


@dataclass(frozen=True)
class Section:
    title: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Dashboard:
    figures: Sequence[MetricTile]
    sections: Sequence[Section]
    counted_since: datetime | None = None


def _quantile(measure: Measure, share: float) -> Value:
    def value(figures: RunMetrics) -> float | None:
        result = figures.quantile(measure, share)
        return None if result is None else float(result)

    return value


def _total(measure: Measure) -> Value:
    def value(figures: RunMetrics) -> float | None:
        result = figures.total(measure)
        return None if result is None else float(result)

    return value


def _count(figures: RunMetrics) -> float:
    return figures.runs


def _error_rate(figures: RunMetrics) -> float | None:
    return figures.error_rate


M = Measure
TILES: tuple[tuple[str, str, Value, int], ...] = (
    ("Traces", "count", _count, 0),
    ("Error rate", "share", _error_rate, -1),
    ("Latency p50", "s", _quantile(M.LATENCY, 0.5), -1),
    ("Latency p99", "s", _quantile(M.LATENCY, 0.99), -1),
    ("Tokens", "tokens", _total(M.TOTAL_TOKENS), 0),
    ("Cost", "usd", _total(M.TOTAL_COST), 0),
)
"""Name, unit, value and direction: more is better (1), worse (-1) or neutral (0)."""


def load_dashboard(project: Project, state: DashboardState, list_address: str) -> Dashboard:
    """Load all charts of the project with five or six store queries."""
    page = _DashboardBuilder(project, state, list_address)
    roots = page.ask(RunQuery(is_root=True), grouped=True)
    before = page.ask(RunQuery(is_root=True), before=True)
    calls = page.ask(RunQuery(run_type="llm"), grouped=True)
    tools = page.ask(RunQuery(run_type="tool"), by_name=True)
    below = page.ask(RunQuery(), by_name=True, depth=1)
    traces = page.charts(
        roots,
        before,
        "traces",
        [
            ("Traces", "count", "stack", [("traces", _count)]),
            ("Error rate", "share", "line", [("failed", _error_rate)]),
            (
                "Latency",
                "s",
                "line",
                [(f"p{n}", _quantile(M.LATENCY, n / 100)) for n in (50, 95, 99)],
            ),
        ],
    )
    models = page.charts(
        calls,
        None,
        "llm",
        [
            ("LLM calls", "count", "stack", [("calls", _count)]),
            ("Latency", "s", "line", [(f"p{n}", _quantile(M.LATENCY, n / 100)) for n in (50, 99)]),
            (
                "First token",
                "s",
                "line",
                [(f"p{n}", _quantile(M.FIRST_TOKEN, n / 100)) for n in (50, 99)],
            ),
        ],
        show="llm",
    )
    spent = page.charts(
        roots,
        before,
        "spent",
        [
            (
                "Tokens",
                "tokens",
                "stack",
                [("in", _total(M.PROMPT_TOKENS)), ("out", _total(M.COMPLETION_TOKENS))],
            ),
            ("Cost", "usd", "stack", [("cost", _total(M.TOTAL_COST))]),
            (
                "Cost per trace",
                "usd",
                "line",
                [(f"p{n}", _quantile(M.TOTAL_COST, n / 100)) for n in (50, 99)],
            ),
        ],
    )
    by_tool = page.named(tools, "tools", 'eq(run_type, "tool")')
    by_name = page.named(below, "below", "")
    # A grouped result omits runs without group and small groups.
    whole = page.ask(RunQuery(is_root=True)).whole if state.group else roots.whole
    return Dashboard(
        [_build_tile(spec, whole, before.whole) for spec in TILES],
        [
            Section("Traces", traces),
            Section("LLM calls", models),
            Section("Tokens and cost", spent),
            *([Section("Top five tools", by_tool)] if by_tool else []),
            *([Section("Top five steps", by_name)] if by_name else []),
        ],
        roots.counted_since or calls.counted_since,
    )


class _DashboardBuilder:
    """Builds the charts of one page for a project, period and grouping."""

    def __init__(self, project: Project, state: DashboardState, list_address: str) -> None:
        self.project, self.state, self.list_address = project, state, list_address
        start, end = state.period.limits
        self.edges = edges(start, end, state.period.step)
        shift: timedelta = end - start
        self.edges_before = [edge - shift for edge in self.edges]

    def ask(
        self,
        query: RunQuery,
        *,
        grouped: bool = False,
        by_name: bool = False,
        before: bool = False,
        depth: int | None = None,
    ) -> MetricsResult:
        bounds = self.edges_before if before else self.edges
        start, end = self.state.period.limits
        if before:
            start, end = bounds[0], bounds[-1]
        group_by = self.state.group_by if grouped else None
        if by_name:
            group_by = GroupBy(GroupAttribute.NAME, max_groups=MAX_GROUPS)
        query = replace(
            query,
            project_ids=[self.project.pk],
            started_from=start,
            started_until=end,
        )
        question = MetricsQuery(
            query=query,
            edges=bounds,
            group_by=group_by,
            depth=depth,
            quantiles=(0.5, 0.95, 0.99),
        )
        return run_store.aggregate(self.project.workspace_id, question)

    def charts(
        self,
        answer: MetricsResult,
        before: MetricsResult | None,
        prefix: str,
        specs: Sequence[tuple[str, str, str, Sequence[tuple[str, Value]]]],
        show: str = "",
    ) -> list[Chart]:
        """Build a chart per entry of `specs`; a grouped chart shows its first value by group."""
        groups = self._groups(answer)
        created = []
        for number, (title, unit, kind, values) in enumerate(specs):
            href = self._href("", show)
            if self.state.group:
                lines = [
                    Line(
                        group, hue, self._row(answer, group, values[0][1]), self._href(group, show)
                    )
                    for group, hue in zip(groups, HUES, strict=False)
                ]
            else:
                lines = [
                    Line(name, hue, self._row(answer, None, value))
                    for (name, value), hue in zip(values, HUES, strict=False)
                ]
                if before is not None and self.state.compares:
                    name, value = values[0]
                    lines.append(Line(f"{name} before", "before", self._row(before, None, value)))
            shown = f"{title}, {values[0][0]}" if self.state.group and len(values) > 1 else title
            drawn = "line" if any(line.hue == "before" for line in lines) else kind
            created.append(Chart(f"{prefix}-{number}", shown, unit, drawn, self.edges, lines, href))
        return created

    def named(self, answer: MetricsResult, prefix: str, limit: str) -> list[Chart]:
        """Build the charts of count, errors and latency by name."""
        names = self._groups(answer)
        specs: tuple[tuple[str, str, str, Value], ...] = (
            ("Runs", "count", "stack", _count),
            ("Error rate", "share", "line", _error_rate),
            ("Latency, p50", "s", "line", _quantile(M.LATENCY, 0.5)),
        )
        if not names:
            return []
        return [
            Chart(
                f"{prefix}-{number}",
                title,
                unit,
                kind,
                self.edges,
                [
                    Line(name, hue, self._row(answer, name, value), self._named(name, limit))
                    for name, hue in zip(names, HUES, strict=False)
                ],
                self._named("", limit),
            )
            for number, (title, unit, kind, value) in enumerate(specs)
        ]

    def _groups(self, answer: MetricsResult) -> list[str]:
        results = [group for group in answer.by_group if group is not None]
        return sorted(results, key=lambda group: (-answer.by_group[group].runs, group))[:MAX_GROUPS]

    def _row(self, answer: MetricsResult, group: str | None, value: Value) -> list[float | None]:
        results = [answer.by_bucket.get((index, group)) for index in range(len(self.edges) - 1)]
        return [value(item or RunMetrics()) for item in results]

    def _named(self, name: str, limit: str) -> str:
        parts = [limit, filter_clauses.build_clause("name", [name]) if name else ""]
        text = filter_clauses.join_clauses([part for part in parts if part])
        data = {"show": "all"} | ({"filter": text} if text else {})
        return f"{self.list_address}?{urlencode(data)}"

    def _href(self, group: str, show: str) -> str:
        """Return the URL of the run list behind a series."""
        data = {"show": show} if show else {}
        if group:
            data["filter"] = self._clause(group)
        return f"{self.list_address}?{urlencode(data)}"

    def _clause(self, group: str) -> str:
        value = filter_clauses.quote_value(group)
        match self.state.group:
            case "tag":
                return f"has(tags, {value})"
            case "metadata":
                key = filter_clauses.quote_value(self.state.path)
                return f"and(eq(metadata_key, {key}), eq(metadata_value, {value}))"
        return f"eq({self.state.group}, {value})"


def _build_tile(
    spec: tuple[str, str, Value, int], now: RunMetrics, before: RunMetrics
) -> MetricTile:
    name, unit, value, good = spec
    this, last = value(now), value(before)
    if this is None or not last:
        return MetricTile(name, format_value(this, unit))
    change = this / last - 1
    if abs(change) < 0.005:
        return MetricTile(name, format_value(this, unit), "no change")
    words = f"{'+' if change > 0 else '−'}{abs(change) * 100:.0f} %"  # noqa: RUF001  (a minus sign)
    is_better = None if not good else (change > 0) == (good > 0)
    return MetricTile(name, format_value(this, unit), words, is_better)
