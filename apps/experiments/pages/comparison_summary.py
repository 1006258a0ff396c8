"""Statistics of compared experiments over all examples, with the counts of better and worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.experiments.pages.comparison import (
    ComparedExperiment,
    compare_scores,
    compared_experiments,
)
from apps.experiments.pages.comparison_state import ComparisonState
from apps.experiments.pages.experiment_list import format_score, without_empty_sums
from apps.experiments.services.results import ResultQuery
from apps.feedback.services import example_scores
from apps.feedback.services.configs import keys_with_lower_better
from apps.feedback.services.example_scores import ScoreChange
from apps.trace_store import run_store
from apps.tracing.pages.comparison import compare_figures
from apps.tracing.services import statistics
from apps.web_ui.formatting import (
    EMPTY,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_percent,
)

MAX_KEYS = 50
METRIC_ROWS = 5
"""The rows above those of scores: runs, errors, latency, tokens and cost."""
_SELECTED = ("trace_count", "error_rate", "latency_p50", "total_tokens", "total_cost")
_Formatter = Callable[[float], str]


@dataclass(frozen=True)
class SummaryCell:
    """A figure of an experiment; counts and links are those of a score compared by example."""

    text: str
    delta: str = ""
    verdict: str = ""
    better: int = 0
    better_url: str = ""
    worse: int = 0
    worse_url: str = ""
    href: str = ""


@dataclass(frozen=True)
class SummaryRow:
    name: str
    cells: Sequence[SummaryCell]
    is_score: bool = False
    is_selected: bool = False
    href: str = ""
    """The address that selects the score."""
    note: str = ""


@dataclass(frozen=True)
class ComparisonSummary:
    experiments: Sequence[ComparedExperiment]
    rows: Sequence[SummaryRow]
    example_count: int
    hidden_keys: int

    @property
    def counts(self) -> Iterator[tuple[ComparedExperiment, SummaryCell | None]]:
        """Return each compared experiment with its cell of the selected score."""
        selected = next((row for row in self.rows if row.is_selected), None)
        for index, experiment in enumerate(self.experiments):
            if not experiment.is_baseline:
                yield experiment, selected.cells[index] if selected else None


def count_rows(keys: Sequence[str]) -> int:
    """Return the number of rows that the statistics of experiments with these scores have."""
    return METRIC_ROWS + min(len(keys), MAX_KEYS)


def load_summary(state: ComparisonState, query: ResultQuery) -> ComparisonSummary:
    """Load the statistics of the experiments; filters do not limit them."""
    ids = query.experiment_ids
    reported = statistics.project_stats(query.workspace_id, ids, select=_SELECTED)
    stats = {item: without_empty_sums(values) for item, values in reported.items()}
    changes = example_scores.compare_with_baseline(
        query.workspace_id, ids[0], ids, comparison_id=query.comparison_id
    )
    examples = run_store.find_examples(query.workspace_id, ids)
    by_key: dict[str, dict[UUID, ScoreChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, {})[change.project_id] = change
    keys = sorted(by_key, key=lambda key: (key != state.key, key))
    lower_better = keys_with_lower_better(query.workspace_id, keys)
    rows = [*_metric_rows(state, ids, stats)]
    rows += (
        _score_row(state, ids, key, by_key[key], is_lower_better=key in lower_better)
        for key in sorted(keys[:MAX_KEYS])
    )
    return ComparisonSummary(
        compared_experiments(query), rows, len(examples), max(0, len(keys) - MAX_KEYS)
    )


def _metric_rows(
    state: ComparisonState, ids: Sequence[UUID], stats: Mapping[UUID, Mapping[str, Any]]
) -> Iterator[SummaryRow]:
    counts = [stats[item]["trace_count"] for item in ids]
    yield SummaryRow("Runs", [SummaryCell(format_count(count)) for count in counts])
    yield SummaryRow("Errors", [_error_cell(state, item, stats) for item in ids])
    metrics: list[tuple[str, str, _Formatter]] = [
        ("Latency p50", "latency_p50", format_duration),
        ("Tokens", "total_tokens", lambda value: format_compact(round(value))),
        ("Cost", "total_cost", format_money),
    ]
    for name, field, formatter in metrics:
        # A row without values, too: the page has reserved the room of all rows.
        values = [_as_float(stats[item][field]) for item in ids]
        yield SummaryRow(name, _metric_cells(name, values, formatter))


def _as_float(value: Any) -> float | None:
    return None if value is None else float(value)


def _metric_cells(
    name: str, values: Sequence[float | None], formatter: _Formatter
) -> list[SummaryCell]:
    first, *others = values
    cells = [SummaryCell(EMPTY if first is None else formatter(first))]
    for value in others:
        figure = compare_figures(name, first, value, formatter)
        # Times and costs differ a little between all experiments: these are not coloured.
        cells.append(SummaryCell(figure.second, "" if figure.delta == "0" else figure.delta))
    return cells


def _error_cell(
    state: ComparisonState, experiment_id: UUID, stats: Mapping[UUID, Mapping[str, Any]]
) -> SummaryCell:
    rate, runs = stats[experiment_id]["error_rate"], stats[experiment_id]["trace_count"]
    if not rate:
        return SummaryCell("0" if runs else EMPTY)
    text = f"{format_count(round(rate * runs))} ({format_percent(rate)})"
    return SummaryCell(text, href=state.url(failed=(experiment_id,), better=(), worse=()))


def _score_row(
    state: ComparisonState,
    ids: Sequence[UUID],
    key: str,
    changes: Mapping[UUID, ScoreChange],
    *,
    is_lower_better: bool,
) -> SummaryRow:
    baseline = changes.get(ids[0])
    # A range or an order by score may be one of another key.
    cleared = {"better": (), "worse": (), "score_of": None, "sort": "", "sort_of": None}
    cells = []
    for index, experiment_id in enumerate(ids):
        change = changes.get(experiment_id)
        if change is None:
            cells.append(SummaryCell(EMPTY))
            continue
        if index == 0:
            cells.append(SummaryCell(format_score(change.average)))
            continue
        delta, verdict = compare_scores(
            baseline and baseline.average, change.average, is_lower_better=is_lower_better
        )
        better, worse = change.higher, change.lower
        if is_lower_better:
            better, worse = worse, better
        limits = cleared | {"key": key}
        cells.append(
            SummaryCell(
                format_score(change.average),
                delta,
                verdict,
                better,
                state.url(**limits | {"better": (experiment_id,)}),
                worse,
                state.url(**limits | {"worse": (experiment_id,)}),
            )
        )
    return SummaryRow(
        key,
        cells,
        is_score=True,
        is_selected=key == state.key,
        href=state.url(**cleared | {"key": key}),
        note="lower is better" if is_lower_better else "",
    )
