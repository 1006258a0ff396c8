"""The evaluators that a new experiment may choose; the app of evaluators registers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from apps.core.errors import Invalid
from apps.datasets.models import Dataset


@dataclass(frozen=True, slots=True)
class EvaluatorChoice:
    """A rule of a dataset that scores the rows of its experiments."""

    rule_id: UUID
    name: str


EvaluatorSource = Callable[[Dataset], Sequence[EvaluatorChoice]]
"""Called with a dataset; returns its enabled rules, the newest first."""

_sources: list[EvaluatorSource] = []


def register_evaluator_source(source: EvaluatorSource) -> None:
    """Register where the rules of datasets are looked up; repeating has no effect."""
    if source not in _sources:
        _sources.append(source)


def list_choices(dataset: Dataset) -> list[EvaluatorChoice]:
    return [choice for source in _sources for choice in source(dataset)]


def check_choice(dataset: Dataset, rule_ids: Sequence[UUID]) -> list[UUID]:
    """Return the ids without repetitions. Raises `Invalid` unless all are enabled rules."""
    known = {choice.rule_id for choice in list_choices(dataset)}
    if missing := [rule_id for rule_id in rule_ids if rule_id not in known]:
        raise Invalid(f"`evaluator_rule_ids`: the dataset has no enabled rule {missing[0]}.")
    return list(dict.fromkeys(rule_ids))
