"""The comparison page: examples in rows, experiments in columns.

The page itself reads only the runs of its rows. Filters and orders by score read the averages of
the experiments that they name, over all examples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.datasets.models import Dataset, ExampleRevision
from apps.experiments.pages.comparison_state import PAGE_SIZE, ComparisonState
from apps.experiments.pages.experiment_list import experiments_of, format_score, hue_of
from apps.experiments.services.comparisons import get_comparison
from apps.experiments.services.results import (
    ResultQuery,
    ResultRow,
    find_examples,
    get_experiments,
    load_rows,
)
from apps.feedback.services import example_scores, score_stats
from apps.feedback.services.configs import keys_with_lower_better
from apps.feedback.services.example_scores import TOLERANCE
from apps.feedback.services.score_stats import FeedbackStats
from apps.ingest.previews import build_preview
from apps.trace_store import NO_PAYLOADS, ExampleRuns, RunDetail, Status
from apps.tracing.models import Project
from apps.tracing.services.projects import experiment_numbers
from apps.web_ui.formatting import format_compact, format_duration, format_money

LETTERS = "ABCDEFGHIJ"
MAX_CHOICES = 30
"""The number of other experiments, the newest, that can be added."""


@dataclass(frozen=True)
class ComparedExperiment:
    project: Project
    number: int
    letter: str
    is_baseline: bool

    @property
    def hue(self) -> str:
        return hue_of(self.number)

    @property
    def id(self) -> UUID:
        return self.project.pk


@dataclass(frozen=True)
class ScoreChip:
    """The score of a key in a cell, and its difference from the baseline."""

    key: str
    text: str
    delta: str = ""
    verdict: str = ""
    """`better`, `worse`, or empty."""
    is_selected: bool = False


@dataclass(frozen=True)
class Cell:
    """The runs of one example in one experiment; repetitions are averaged."""

    experiment: ComparedExperiment
    run_count: int = 0
    failed_count: int = 0
    pending_count: int = 0
    output: str = ""
    error: str = ""
    scores: Sequence[ScoreChip] = ()
    latency: str = ""
    tokens: str = ""
    cost: str = ""

    @property
    def is_empty(self) -> bool:
        return self.run_count == 0


@dataclass(frozen=True)
class ComparisonRow:
    example_id: UUID
    inputs: str
    reference: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class ComparisonPage:
    experiments: Sequence[ComparedExperiment]
    rows: Sequence[ComparisonRow]
    keys: Sequence[str]
    key: str
    """The selected score, or the first one of the page."""
    total: int | None
    """The number of listed examples; None if it was not counted."""
    has_next: bool


def build_query(dataset: Dataset, state: ComparisonState) -> ResultQuery:
    """Return the query of the compared experiments.

    Raises `ExperimentNotFound`, and `ComparisonNotFound` for a comparison of another dataset.
    """
    if state.pairwise_id is not None:
        get_comparison(dataset.workspace_id, state.pairwise_id, dataset=dataset)
    return ResultQuery(
        dataset=dataset,
        experiments=get_experiments(dataset, state.experiment_ids),
        filters={item: ['eq(status, "error")'] for item in state.failed},
        comparison_id=state.pairwise_id,
    )


def compared_experiments(query: ResultQuery) -> list[ComparedExperiment]:
    numbers = experiment_numbers(query.workspace_id, query.experiments)
    return [
        ComparedExperiment(project, numbers[project.pk], letter, letter == "A")
        for project, letter in zip(query.experiments, LETTERS, strict=False)
    ]


def list_choices(dataset: Dataset, state: ComparisonState) -> list[Project]:
    """Return the newest experiments that can be added to the comparison."""
    return list(experiments_of(dataset).exclude(pk__in=state.experiment_ids)[:MAX_CHOICES])


def load_comparison(state: ComparisonState, query: ResultQuery) -> ComparisonPage:
    """Load a page of the compared examples."""
    examples, total = _find_page(state, query)
    rows = load_rows(query, examples[:PAGE_SIZE], NO_PAYLOADS)
    run_ids = [run.row.id for row in rows for run in row.runs]
    feedback = score_stats.by_run(query.workspace_id, run_ids, comparison_id=query.comparison_id)
    keys = _page_keys(state, query, feedback.values())
    key = state.key or (keys[0] if keys else "")
    lower_better = keys_with_lower_better(query.workspace_id, keys)
    experiments = compared_experiments(query)
    scorer = _Scorer(feedback, keys, lower_better, key)
    return ComparisonPage(
        experiments,
        [_build_row(row, experiments, scorer) for row in rows],
        keys,
        key,
        total,
        len(examples) > PAGE_SIZE,
    )


def _find_page(
    state: ComparisonState, query: ResultQuery
) -> tuple[Sequence[ExampleRuns], int | None]:
    """Return the examples of the page, and one more if there is a next page; and their number."""
    end = state.offset + PAGE_SIZE + 1
    if not state.needs_scores:
        return find_examples(query, offset=state.offset, limit=PAGE_SIZE + 1), None
    examples = find_examples(query)
    averages = example_scores.average_by_example(
        query.workspace_id, state.scored_ids, state.key, comparison_id=query.comparison_id
    )
    lower_better = keys_with_lower_better(query.workspace_id, [state.key])
    selection = _Selection(state, averages, -1 if lower_better else 1)
    matched = selection.sort([item for item in examples if selection.matches(item.example_id)])
    return matched[state.offset : end], len(matched)


class _Selection:
    """Decides by score which examples are listed, and in which order.

    `sign` is -1 if lower scores are better, so that a signed difference above 0 is an improvement.
    """

    def __init__(
        self, state: ComparisonState, averages: Mapping[UUID, Mapping[UUID, float]], sign: int
    ) -> None:
        self._state = state
        self._averages = averages
        self._sign = sign

    def matches(self, example_id: UUID) -> bool:
        state = self._state
        for experiment_id in state.better:
            if (self._change(experiment_id, example_id) or 0) <= TOLERANCE:
                return False
        for experiment_id in state.worse:
            if (self._change(experiment_id, example_id) or 0) >= -TOLERANCE:
                return False
        if state.score_of is None:
            return True
        score = self._score(state.score_of, example_id)
        if score is None or (state.low is not None and score < state.low - TOLERANCE):
            return False
        return state.high is None or score <= state.high + TOLERANCE

    def sort(self, examples: list[ExampleRuns]) -> list[ExampleRuns]:
        """Sort the examples; without an order, regressions have the worst first."""
        state = self._state
        sort, experiment_id = state.sort, state.sort_of
        if not sort and state.worse:
            sort, experiment_id = "worst", state.worse[0]
        elif not sort and state.better:
            sort, experiment_id = "best", state.better[0]
        if not sort or experiment_id is None:
            return examples
        read = self._change if sort in {"worst", "best"} else self._score
        values = {item.example_id: read(experiment_id, item.example_id) for item in examples}
        known = [item for item in examples if values[item.example_id] is not None]
        known.sort(key=lambda item: values[item.example_id] or 0, reverse=sort in {"best", "high"})
        return known + [item for item in examples if values[item.example_id] is None]

    def _score(self, experiment_id: UUID, example_id: UUID) -> float | None:
        return self._averages.get(experiment_id, {}).get(example_id)

    def _change(self, experiment_id: UUID, example_id: UUID) -> float | None:
        """Return by how much the score is better than the baseline's."""
        baseline_id = self._state.baseline_id
        before = None if baseline_id is None else self._score(baseline_id, example_id)
        after = self._score(experiment_id, example_id)
        return None if before is None or after is None else self._sign * (after - before)


def _page_keys(
    state: ComparisonState, query: ResultQuery, feedback: Iterable[FeedbackStats]
) -> list[str]:
    """Return the keys of the page's scores and those that the experiments announced."""
    keys = {key for by_key in feedback for key in by_key}
    for project in query.experiments:
        keys.update((project.plan or {}).get("evaluator_keys") or ())
    if state.key:
        keys.add(state.key)
    return sorted(keys)


@dataclass(frozen=True)
class RunScores:
    """The scores of an example in one experiment, by key; repetitions are averaged."""

    means: Mapping[str, float]
    labels: Mapping[str, str]
    """The most frequent value of keys without scores."""


def average_scores(runs: Sequence[RunDetail], feedback: Mapping[UUID, FeedbackStats]) -> RunScores:
    means: dict[str, list[float]] = defaultdict(list)
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for key, stats in feedback.get(run.row.id, {}).items():
            if stats["avg"] is not None:
                means[key].append(float(stats["avg"]))
            else:
                values[key].update(stats["values"])
    return RunScores(
        {key: sum(scores) / len(scores) for key, scores in means.items()},
        {key: counts.most_common(1)[0][0] for key, counts in values.items() if counts},
    )


@dataclass(frozen=True)
class _Scorer:
    """Builds the score chips of cells."""

    feedback: Mapping[UUID, FeedbackStats]
    keys: Sequence[str]
    lower_better: set[str]
    selected_key: str

    def chips(self, scores: RunScores, baseline: RunScores | None) -> list[ScoreChip]:
        chips = []
        for key in self.keys:
            is_selected = key == self.selected_key
            if (mean := scores.means.get(key)) is not None:
                before = baseline.means.get(key) if baseline is not None else None
                delta, verdict = compare_scores(
                    before, mean, is_lower_better=key in self.lower_better
                )
                chips.append(ScoreChip(key, format_score(mean), delta, verdict, is_selected))
            elif key in scores.labels:
                chips.append(ScoreChip(key, scores.labels[key], is_selected=is_selected))
        return chips


def compare_scores(
    before: float | None, after: float | None, *, is_lower_better: bool
) -> tuple[str, str]:
    """Return the difference as text, and `better` or `worse`; both empty if there is none."""
    if before is None or after is None or abs(after - before) <= TOLERANCE:
        return "", ""
    difference = after - before
    sign = "+" if difference > 0 else "\N{MINUS SIGN}"
    is_better = (difference < 0) == is_lower_better
    return f"{sign}{format_score(abs(difference))}", "better" if is_better else "worse"


def _build_row(
    row: ResultRow, experiments: Sequence[ComparedExperiment], scorer: _Scorer
) -> ComparisonRow:
    runs_by_project: dict[UUID, list[RunDetail]] = defaultdict(list)
    for run in row.runs:
        runs_by_project[run.row.project_id].append(run)
    baseline: RunScores | None = None
    cells = []
    for experiment in experiments:
        runs = runs_by_project[experiment.id]
        scores = average_scores(runs, scorer.feedback)
        cells.append(_build_cell(experiment, runs, scorer.chips(scores, baseline)))
        if experiment.is_baseline:
            baseline = scores
    return ComparisonRow(row.example_id, *example_texts(row.revision), cells)


def example_texts(revision: ExampleRevision | None) -> tuple[str, str]:
    """Return inputs and reference output on one line each."""
    if revision is None:
        return "", ""
    return build_preview(revision.inputs) or "", build_preview(revision.outputs) or ""


def _build_cell(
    experiment: ComparedExperiment, runs: Sequence[RunDetail], scores: Sequence[ScoreChip]
) -> Cell:
    rows = [run.row for run in runs]
    failed = [row for row in rows if row.has_failed]
    pending = [row for row in rows if row.status is Status.PENDING]
    succeeded = [row for row in rows if row.status is Status.SUCCESS]
    return Cell(
        experiment,
        run_count=len(rows),
        failed_count=len(failed),
        pending_count=len(pending),
        output=(succeeded[0].outputs_preview or "") if succeeded else "",
        error=(failed[0].error_preview or "") if failed else "",
        scores=scores,
        latency=_mean_text(
            (row.latency.total_seconds() for row in rows if row.latency), format_duration
        ),
        tokens=_mean_text(
            (row.usage.total_tokens for row in rows if row.usage.total_tokens is not None),
            lambda value: format_compact(round(value)),
        ),
        cost=_mean_text(
            (float(row.usage.total_cost) for row in rows if row.usage.total_cost is not None),
            format_money,
        ),
    )


def _mean_text(values: Iterable[float], formatter: Any) -> str:
    numbers = list(values)
    return str(formatter(sum(numbers) / len(numbers))) if numbers else ""
