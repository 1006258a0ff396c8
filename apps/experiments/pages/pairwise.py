"""Data of the list of pairwise comparisons, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from apps.datasets.models import Dataset
from apps.experiments.models import ComparativeExperiment
from apps.experiments.pages.comparison_state import MAX_COMPARED
from apps.experiments.pages.experiment_list import format_score
from apps.experiments.services.comparisons import experiment_names
from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.web_ui.formatting import EMPTY

PAGE_SIZE = 25


@dataclass(frozen=True)
class PairwiseScore:
    """The mean of a key in each experiment, in the order of the comparison."""

    key: str
    means: Sequence[tuple[str, bool]]
    """The mean as text, and whether it is the highest."""
    count: int


@dataclass(frozen=True)
class PairwiseRow:
    comparison: ComparativeExperiment
    names: Sequence[str]
    scores: Sequence[PairwiseScore]
    url: str
    """The comparison page; empty if less than two of the experiments are left."""


def load_pairwise(dataset: Dataset, offset: int) -> tuple[list[PairwiseRow], bool]:
    """Return a page of the comparisons, newest first, and whether there is a next page."""
    rows = ComparativeExperiment.objects.for_workspace(dataset.workspace_id)
    rows = rows.filter(dataset=dataset).order_by("-created_at", "-pk")
    candidates = list(rows[offset : offset + PAGE_SIZE + 1])
    page = candidates[:PAGE_SIZE]
    names = experiment_names(dataset.workspace_id, page)
    stats = score_stats.by_comparison(dataset.workspace_id, [item.pk for item in page])
    compare = reverse("dataset-experiments-compare", args=[dataset.workspace_id, dataset.pk])
    return [
        _build_row(comparison, names, stats.get(comparison.pk, {}), compare) for comparison in page
    ], len(candidates) > PAGE_SIZE


def _build_row(
    comparison: ComparativeExperiment,
    names: Mapping[UUID, str],
    feedback: Mapping[UUID, FeedbackStats],
    compare_url: str,
) -> PairwiseRow:
    ids = [item for item in comparison.experiment_ids if item in names]
    keys = sorted({key for by_key in feedback.values() for key in by_key})
    scores = [_build_score(key, [feedback.get(item, {}).get(key) for item in ids]) for key in keys]
    url = ""
    if len(ids) > 1:
        pairs = [("baseline", str(ids[0])), *(("e", str(item)) for item in ids[1:MAX_COMPARED])]
        url = f"{compare_url}?{urlencode([*pairs, ('pairwise', str(comparison.pk))])}"
    return PairwiseRow(comparison, [names[item] for item in ids], scores, url)


def _build_score(key: str, entries: Sequence[Mapping[str, Any] | None]) -> PairwiseScore:
    means = [entry["avg"] if entry else None for entry in entries]
    known = {mean for mean in means if mean is not None}
    best = max(known) if len(known) > 1 else None
    texts = [
        (EMPTY if mean is None else format_score(mean), best is not None and mean == best)
        for mean in means
    ]
    return PairwiseScore(key, texts, sum(entry["n"] for entry in entries if entry))
