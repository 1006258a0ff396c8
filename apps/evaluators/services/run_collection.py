"""Puts the runs that a rule applies to in its annotation queue and adds them to its dataset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.annotation.models import AnnotationQueue
from apps.annotation.services.items import add_rows
from apps.core.errors import AppError
from apps.datasets.models import Dataset
from apps.datasets.services.run_examples import add_runs
from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.services import leases
from apps.feedback.models import Feedback
from apps.trace_store import RunRow, run_store

TARGETS_DELETED = "The annotation queue or dataset of the rule was deleted."


def is_collecting(rule: EvaluatorRule) -> bool:
    """Whether the rule has a queue or a dataset that is not deleted."""
    return rule.annotation_queue is not None or rule.present_dataset is not None


def collect(evaluation: Evaluation, run: RunRow) -> str:
    """Collect the run of a claimed evaluation as its rule says; return why not, or ''.

    Once for each run: neither a retry nor a later evaluation adds it again. An attempt that lost
    its lease adds nothing.
    """
    rule = evaluation.rule
    problems = []
    if rule.annotation_queue is not None:
        add_to_queue = partial(_add_to_queue, rule, rule.annotation_queue, run)
        if problem := _do_once(evaluation, "queued_at", add_to_queue):
            problems.append(f"The run was not put in the annotation queue: {problem}")
    if (dataset := rule.present_dataset) is not None:
        add_to_dataset = partial(_add_to_dataset, rule, dataset, run)
        if problem := _do_once(evaluation, "added_to_dataset_at", add_to_dataset):
            problems.append(f"The run was not added to the dataset: {problem}")
    return " ".join(problems)


def _do_once(evaluation: Evaluation, column: str, action: Callable[[], None]) -> str:
    """Do it and note when, in one transaction; return why it failed, or ''."""
    try:
        with transaction.atomic():
            held = leases.held(evaluation).filter(**{column: None})
            if held.select_for_update().first() is None:
                return ""
            action()
            held.update(**{column: timezone.now()})
    except AppError as error:
        return error.detail
    return ""


def _add_to_queue(rule: EvaluatorRule, queue: AnnotationQueue, run: RunRow) -> None:
    add_rows(queue=queue, rows=[run])
    if rule.extends_queue_retention:
        run_store.retain_traces(rule.workspace_id, {run.trace_id})


def _add_to_dataset(rule: EvaluatorRule, dataset: Dataset, run: RunRow) -> None:
    correction = _find_correction(run) if rule.prefers_correction else None
    corrections = {} if correction is None else {run.id: correction}
    add_runs(dataset=dataset, run_ids=[run.id], corrections=corrections)
    if rule.extends_dataset_retention:
        run_store.retain_traces(rule.workspace_id, {run.trace_id})


def _find_correction(run: RunRow) -> dict[str, Any] | None:
    """Return the newest correction of the run that can be outputs: an object."""
    rows = Feedback.objects.for_workspace(run.workspace_id).filter(run_id=run.id)
    rows = rows.filter(correction__isnull=False)
    for correction in rows.order_by("-created_at", "-pk").values_list("correction", flat=True)[:20]:
        if isinstance(correction, dict):
            return correction
    return None
