"""One example of the comparison: the outputs of two experiments side by side, with a text diff."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.core import errors
from apps.core.json import Fragment, dumps_text
from apps.experiments.pages.comparison import (
    ComparedExperiment,
    RunScores,
    average_scores,
    compared_experiments,
)
from apps.experiments.pages.experiment_list import format_score
from apps.experiments.services.results import ResultQuery, find_examples, load_rows
from apps.feedback.services import score_stats
from apps.feedback.services.configs import keys_with_lower_better
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import Payload, RunDetail
from apps.tracing.pages.comparison import ComparedFigure, compare_figures, payload_text
from apps.tracing.pages.payload_views import (
    RENDERED_BYTES,
    PayloadView,
    build_payload_view,
    build_value_view,
)
from apps.web_ui.formatting import EMPTY, format_compact, format_duration, format_money
from apps.web_ui.text_diff import TextDiff, compare_texts

_PAYLOADS = frozenset({Payload.OUTPUTS, Payload.ERROR})
MAX_REPETITIONS = 100
"""The number of repetitions that can be selected."""


@dataclass(frozen=True)
class ExampleSide:
    """The selected run of one experiment."""

    experiment: ComparedExperiment
    run: RunDetail | None
    """None if the experiment has no run of the example."""
    number: int
    """The number of the run among the repetitions, from 0."""
    run_count: int
    output: PayloadView | None
    error: str
    comments: Sequence[tuple[str, str]]
    """The keys and comments of the run's feedback."""

    @property
    def text(self) -> str:
        return payload_text(self.output) if self.output is not None else ""

    @property
    def repetitions(self) -> range:
        return range(min(self.run_count, MAX_REPETITIONS))


@dataclass(frozen=True)
class ExampleDetail:
    """An example with the baseline and, if another experiment is compared, that one."""

    example_id: UUID
    as_of: str
    """The version of the dataset with this content; empty if the example was erased."""
    inputs: PayloadView
    reference: PayloadView
    sides: Sequence[ExampleSide]
    experiments: Sequence[ComparedExperiment]
    figures: Sequence[ComparedFigure]
    diff: TextDiff
    against_reference: bool


def load_example(
    query: ResultQuery,
    example_id: UUID,
    *,
    with_id: UUID | None,
    numbers: tuple[int, int],
    against_reference: bool,
) -> ExampleDetail:
    """Load the example; raises `NotFound` if none of the experiments has a run of it.

    `with_id` is the experiment next to the baseline, by default the first other one. `numbers`
    select the repetitions.
    """
    example_query = ResultQuery(
        dataset=query.dataset,
        experiments=query.experiments,
        example_ids=[example_id],
        comparison_id=query.comparison_id,
    )
    rows = load_rows(example_query, find_examples(example_query), _PAYLOADS)
    if not rows:
        raise errors.NotFound
    row = rows[0]
    experiments = compared_experiments(query)
    shown = experiments[:1]
    others = [item for item in experiments if not item.is_baseline]
    if with_id is not None and with_id not in {item.id for item in experiments}:
        raise errors.NotFound
    shown += [item for item in others if with_id is None or item.id == with_id][:1]
    runs: dict[UUID, list[RunDetail]] = defaultdict(list)
    for run in row.runs:
        runs[run.row.project_id].append(run)
    feedback = score_stats.by_run(
        query.workspace_id, [run.row.id for run in row.runs], comparison_id=query.comparison_id
    )
    sides = [
        _build_side(item, runs[item.id], number, feedback)
        for item, number in zip(shown, numbers, strict=False)
    ]
    revision = row.revision
    inputs = _json_view("inputs", None if revision is None else revision.inputs)
    reference = _json_view("reference", None if revision is None else revision.outputs)
    against_reference = against_reference or len(sides) == 1
    before = payload_text(reference) if against_reference else sides[0].text
    scores = [average_scores(runs[side.experiment.id], feedback) for side in sides]
    return ExampleDetail(
        example_id,
        "" if revision is None else revision.valid_from.isoformat(),
        inputs,
        reference,
        sides,
        experiments,
        list(_build_figures(query.workspace_id, [runs[item.id] for item in shown], scores)),
        compare_texts(before, sides[-1].text),
        against_reference,
    )


def _json_view(name: str, value: Any) -> PayloadView:
    body = None if value is None else Fragment(dumps_text(value).encode())
    return build_value_view(name, body, value if body and len(body) <= RENDERED_BYTES else None)


def _build_side(
    experiment: ComparedExperiment,
    runs: Sequence[RunDetail],
    number: int,
    feedback: Mapping[UUID, FeedbackStats],
) -> ExampleSide:
    if not runs:
        return ExampleSide(experiment, None, 0, 0, None, "", ())
    number = min(number, len(runs) - 1)
    run = runs[number]
    comments = [
        (key, comment)
        for key, stats in sorted(feedback.get(run.row.id, {}).items())
        for comment in stats["comments"]
    ]
    error = run.value(Payload.ERROR)
    return ExampleSide(
        experiment,
        run,
        number,
        len(runs),
        build_payload_view(run, Payload.OUTPUTS),
        "" if error is None else str(error),
        comments,
    )


def _build_figures(
    workspace_id: UUID, runs: Sequence[Sequence[RunDetail]], scores: Sequence[RunScores]
) -> Iterator[ComparedFigure]:
    """Yield the averages of the repetitions; with one experiment, without differences."""
    keys = sorted({key for item in scores for key in (*item.means, *item.labels)})
    lower_better = keys_with_lower_better(workspace_id, keys)
    for key in keys:
        means = [item.means.get(key) for item in scores]
        if all(mean is None for mean in means):
            labels = [item.labels.get(key, EMPTY) for item in scores]
            yield ComparedFigure(key, labels[0], labels[1] if len(labels) > 1 else "")
        else:
            yield _figure(key, means, format_score, is_lower_better=key in lower_better)
    yield _figure("Latency", [_mean(item, _latency) for item in runs], format_duration)
    tokens = [_mean(item, lambda run: run.row.usage.total_tokens) for item in runs]
    costs = [_mean(item, lambda run: run.row.usage.total_cost) for item in runs]
    if any(value is not None for value in tokens):
        yield _figure("Tokens", tokens, lambda value: format_compact(round(value)))
    if any(value is not None for value in costs):
        yield _figure("Cost", costs, format_money)


def _figure(
    name: str,
    values: Sequence[float | None],
    formatter: Callable[[float], str],
    *,
    is_lower_better: bool = True,
) -> ComparedFigure:
    second = values[1] if len(values) > 1 else None
    return compare_figures(name, values[0], second, formatter, is_lower_better=is_lower_better)


def _latency(run: RunDetail) -> float | None:
    return None if run.row.latency is None else run.row.latency.total_seconds()


def _mean(runs: Sequence[RunDetail], read: Callable[[RunDetail], Any]) -> float | None:
    values = [float(value) for run in runs if (value := read(run)) is not None]
    return sum(values) / len(values) if values else None
