"""Facets of numeric fields: a histogram of the listed runs, with two handles for a range."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from apps.core.json import dumps_text
from apps.trace_store import run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.histograms import bin_value
from apps.trace_store.metrics import Distribution, Measure, to_display_value
from apps.tracing.models import Project
from apps.tracing.pages import query_clauses
from apps.tracing.pages.list_state import ListState
from apps.web_ui.formatting import format_count, format_duration, format_money

MEASURES = {
    "latency": Measure.LATENCY,
    "first_token": Measure.FIRST_TOKEN,
    "tokens": Measure.TOTAL_TOKENS,
    "tokens.in": Measure.PROMPT_TOKENS,
    "tokens.out": Measure.COMPLETION_TOKENS,
    "cost": Measure.TOTAL_COST,
}
"""The measures of the query fields."""
TITLES = {"latency": "Latency", "tokens": "Tokens", "cost": "Cost"}
"""The fields that have a facet."""
BARS = 24
_DIGITS = 2
"""Significant digits of the bounds of bars."""


@dataclass(frozen=True)
class HistogramBar:
    """A bar of a histogram; position and height are in the units of the drawing, 24 by 24."""

    x: int
    y: float
    height: float
    is_selected: bool


@dataclass(frozen=True)
class NumberFacet:
    name: str
    title: str
    bars: Sequence[HistogramBar]
    bounds: Sequence[str]
    """The bounds of the bars as texts of the query, from the least to the greatest value."""
    labels: Sequence[str]
    """The bounds in the format of the table."""
    low: int
    """The index of the lower bound of the selected range, 0 without one."""
    high: int
    """The index of its upper bound."""
    url: str
    """The URL of the list without a range of this field."""

    @property
    def last(self) -> int:
        return len(self.bounds) - 1

    @property
    def bounds_json(self) -> str:
        return dumps_text(list(self.bounds))

    @property
    def labels_json(self) -> str:
        return dumps_text(list(self.labels))

    @property
    def is_selected(self) -> bool:
        return self.low > 0 or self.high < self.last

    @property
    def low_text(self) -> str:
        return self.labels[self.low]

    @property
    def high_text(self) -> str:
        return self.labels[self.high]


def load_number_facets(project: Project, state: ListState) -> list[NumberFacet]:
    """Load the histograms of latency, tokens and cost; fields with less than two values have none.

    A selected range does not limit the histogram of its own field.
    """
    limits = {name: query_clauses.number_limits(state.query_text, name) for name in TITLES}
    open_fields = [name for name, limit in limits.items() if limit is None]
    distributions = _load(project, state, open_fields) if open_fields else {}
    for name, limit in limits.items():
        if limit is not None:
            rest = state.with_query(query_clauses.remove_number(state.query_text, name))
            distributions |= _load(project, rest, [name])
    facets = (_build(state, name, distributions[name], limits[name]) for name in TITLES)
    return [facet for facet in facets if facet is not None]


def _load(project: Project, state: ListState, names: Sequence[str]) -> dict[str, Distribution]:
    measures = {name: MEASURES[name] for name in names}
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(query=state.query(project), measures=tuple(measures.values()), quantiles=None),
    )
    distributions = result.overall.measures
    return {name: distributions.get(measure, Distribution()) for name, measure in measures.items()}


def _build(
    state: ListState,
    name: str,
    values: Distribution,
    limits: tuple[Decimal | None, Decimal | None] | None,
) -> NumberFacet | None:
    measure = MEASURES[name]
    low, high = (float(to_display_value(measure, item)) for item in (values.least, values.most))
    bounds = _divide(low, high, is_integer=measure.is_tokens)
    if len(bounds) < 3:
        return None
    counts = [0] * (len(bounds) - 1)
    for index, count in values.histogram.bins.items():
        value = float(to_display_value(measure, Decimal(repr(bin_value(index)))))
        counts[min(max(bisect_left(bounds, value) - 1, 0), len(counts) - 1)] += count
    selected_low, selected_high = limits or (None, None)
    first = 0 if selected_low is None else _nearest(bounds, float(selected_low))
    last = len(bounds) - 1 if selected_high is None else _nearest(bounds, float(selected_high))
    top = max(counts)
    heights = [0.0 if not count else max(1.5, 24 * count / top) for count in counts]
    rest = query_clauses.remove_number(state.query_text, name)
    return NumberFacet(
        name,
        TITLES[name],
        [
            HistogramBar(index, round(24 - height, 2), round(height, 2), first <= index < last)
            for index, height in enumerate(heights)
        ],
        [format_bound(bound, measure) for bound in bounds],
        [_format_label(bound, measure) for bound in bounds],
        first,
        last,
        state.build_url(query=query_clauses.group_query(rest), view=""),
    )


def _divide(low: float, high: float, *, is_integer: bool) -> list[float]:
    """Return up to `BARS` + 1 bounds, by a constant factor, that contain both values."""
    if high <= 0 or high == low:
        return []
    least = _round(max(low, high / 100_000), math.floor)
    most = _round(high, math.ceil)
    bounds = [_round(least * (most / least) ** (step / BARS)) for step in range(BARS + 1)]
    if is_integer:
        bounds = [float(round(bound)) for bound in bounds]
    bounds[0] = 0.0 if low <= 0 else bounds[0]
    return sorted(set(bounds))


def _round(value: float, to_integer: Callable[[float], int] = round) -> float:
    """Round a positive number to `_DIGITS` significant digits."""
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    return float(f"{to_integer(value / 10.0**exponent)}e{exponent}")


def _nearest(bounds: Sequence[float], value: float) -> int:
    return min(range(len(bounds)), key=lambda index: abs(bounds[index] - value))


def format_bound(value: float, measure: Measure) -> str:
    """Format a value of the measure as text of a query: `240ms`, `12s`, `5m`, `4000`, `$0.012`."""
    if measure.is_time:
        return _format_seconds(value)
    return f"${_plain(value)}" if measure is Measure.TOTAL_COST else f"{value:.0f}"


def _format_label(value: float, measure: Measure) -> str:
    if measure.is_time:
        return format_duration(value)
    return format_money(value) if measure is Measure.TOTAL_COST else format_count(round(value))


def _format_seconds(value: float) -> str:
    if value >= 7200:
        return f"{_plain(value / 3600)}h"
    if value >= 120:
        return f"{_plain(value / 60)}m"
    return f"{_plain(value * 1000)}ms" if 0 < value < 1 else f"{_plain(value)}s"


def _plain(value: float) -> str:
    """Format with three significant digits, without an exponent."""
    return f"{Decimal(f'{value:.3g}'):f}"
