"""Puts the runs that a rule applies to in its annotation queue."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from apps.annotation.services.items import add_rows
from apps.core.errors import AppError
from apps.evaluators.models import Evaluation
from apps.evaluators.services import leases
from apps.trace_store import RunRow, run_store

QUEUE_DELETED = "The annotation queue of the rule was deleted."


def add_to_queue(evaluation: Evaluation, run: RunRow) -> str:
    """Put the run of a claimed evaluation in the rule's queue; return why not, or ''.

    Once for each run: neither a retry nor a later evaluation adds it again. An attempt that lost
    its lease adds nothing.
    """
    rule = evaluation.rule
    if rule.annotation_queue is None:
        return ""
    try:
        with transaction.atomic():
            held = leases.held(evaluation).filter(queued_at=None)
            if held.select_for_update().first() is None:
                return ""
            add_rows(queue=rule.annotation_queue, rows=[run])
            if rule.extends_queue_retention:
                run_store.retain_traces(rule.workspace_id, {run.trace_id})
            held.update(queued_at=timezone.now())
    except AppError as error:
        return f"The run was not put in the annotation queue: {error.detail}"
    return ""
