"""Which examples an experiment improved or made worse, compared with a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from apps.experiments.services.results import ResultQuery, find_examples
from apps.feedback.services import example_scores
from apps.feedback.services.configs import keys_with_lower_better


@dataclass(frozen=True, slots=True)
class FeedbackDelta:
    """Examples whose average score differs from the baseline's, in the order of the first run."""

    improved: Sequence[UUID]
    regressed: Sequence[UUID]


def compare_scores(
    query: ResultQuery, key: str, *, offset: int, limit: int
) -> dict[UUID, FeedbackDelta]:
    """Compare the first experiment with each other one, over a page of the examples.

    The scores of repetitions are averaged. Examples without a score in both are not compared. A
    lower score is an improvement if the config of the key says so.
    """
    examples = find_examples(query, offset=offset, limit=limit)
    scores = example_scores.average_by_example(
        query.workspace_id, query.experiment_ids, key, comparison_id=query.comparison_id
    )
    baseline_id, *others = query.experiment_ids
    baseline = scores.get(baseline_id, {})
    is_lower_better = key in keys_with_lower_better(query.workspace_id, [key])
    deltas = {}
    for experiment_id in others:
        compared = scores.get(experiment_id, {})
        higher, lower = [], []
        for example_id in (item.example_id for item in examples):
            if example_id not in baseline or example_id not in compared:
                continue
            difference = compared[example_id] - baseline[example_id]
            if difference > example_scores.TOLERANCE:
                higher.append(example_id)
            elif difference < -example_scores.TOLERANCE:
                lower.append(example_id)
        deltas[experiment_id] = (
            FeedbackDelta(lower, higher) if is_lower_better else FeedbackDelta(higher, lower)
        )
    return deltas
