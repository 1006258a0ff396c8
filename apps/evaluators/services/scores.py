"""Writes the scores of an evaluation as feedback of its run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec
from django.db import transaction

from apps.core.errors import AppError
from apps.evaluators.models import Evaluation
from apps.evaluators.scoring import Score
from apps.feedback.models import Feedback
from apps.feedback.services import attach_to_runs
from apps.feedback.services.feedback import delete_feedback, store_feedback
from apps.feedback.wire import WireFeedback

MODEL, CODE = "model", "auto_eval"
"""Types of the feedback's source, as the public clients name them."""


def write_feedback(row: Evaluation, scores: Sequence[Score]) -> str:
    """Write the scores in place of those of an earlier evaluation; return why not, or ''."""
    previous = {item["key"] for item in row.scores or ()}
    try:
        with transaction.atomic():
            items = [_build_feedback(row, score) for score in scores]
            if rejected := store_feedback(row.workspace_id, items):
                raise rejected[0].error
            attach_to_runs.attach(row.workspace_id, [row.run_id])
            _delete_feedback(row, previous - {score.key for score in scores})
    except AppError as error:
        return f"The feedback was refused: {error.detail}"
    row.scores = [msgspec.to_builtins(score) for score in scores]
    return ""


def _build_feedback(row: Evaluation, score: Score) -> WireFeedback:
    metadata: dict[str, Any] = {
        "rule_id": str(row.rule_id),
        "evaluator_id": str(row.rule.evaluator_id),
    }
    if row.judge_run_id is not None:
        metadata["__run"] = {"run_id": str(row.judge_run_id)}
    return WireFeedback(
        id=_feedback_id(row, score.key),
        key=score.key,
        run_id=row.run_id,
        session_id=row.project_id,
        score=score.score,
        value=score.value,
        comment=score.comment,
        feedback_source={"type": CODE if row.is_code else MODEL, "metadata": metadata},
    )


def _feedback_id(row: Evaluation, key: str) -> UUID:
    """The same id for each evaluation of the run by the rule: a later one replaces the feedback."""
    return uuid5(row.pk, key)


def _delete_feedback(row: Evaluation, keys: Collection[str]) -> None:
    rows = Feedback.objects.for_workspace(row.workspace_id)
    for feedback in rows.filter(pk__in=[_feedback_id(row, key) for key in keys]):
        delete_feedback(feedback)
