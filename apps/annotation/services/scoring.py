"""The feedback that a reviewer gives on the run of an item: one entry for each key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID, uuid5

from django.db import transaction

from apps.annotation import errors
from apps.annotation.models import QueueItem
from apps.annotation.services.reviews import VIEWED, set_status
from apps.core.errors import Invalid
from apps.core.linear_regex import compile_pattern
from apps.feedback.models import Feedback
from apps.feedback.services.feedback import create_feedback
from apps.feedback.wire import WireFeedback


@transaction.atomic
def give_feedback(
    *,
    item: QueueItem,
    user_id: UUID,
    key: str,
    score: float | None = None,
    comment: str | None = None,
) -> Feedback:
    """Store the reviewer's score or comment of the key; it replaces what they gave before.

    A score is a part of a review: it reserves the item again. Raises `QueueItemReserved`,
    `NotAnAssignedReviewer`, `QueueItemCompleted` for an item that others have reviewed, `Invalid`
    for a comment that the rubric does not accept, and the errors of feedback.
    """
    review = set_status(item=item, reviewer_id=user_id, status=VIEWED)
    if review.item.completed_at is not None and review.completed_at is None:
        raise errors.QueueItemCompleted
    rubric = {entry["feedback_key"]: entry for entry in item.queue.rubric_items}
    pattern = rubric.get(key, {}).get("regex_validator")
    if comment and pattern and not compile_pattern(pattern).search(comment):
        raise Invalid(f"The text of {key:.100} does not match the pattern of the rubric.")
    feedback = WireFeedback(
        id=feedback_id(item, user_id, key),
        key=key,
        run_id=item.run_id,
        trace_id=item.trace_id,
        session_id=item.project_id,
        feedback_source={
            "type": "app",
            "metadata": {"annotation_queue_id": str(item.queue_id)},
        },
        score=score,
        comment=comment,
    )
    return create_feedback(item.workspace_id, feedback, user_id=user_id)


def feedback_id(item: QueueItem, user_id: UUID, key: str) -> UUID:
    """Return the id of the reviewer's feedback, so that a second score replaces the first."""
    return uuid5(item.pk, f"{user_id}:{key}")


def given_feedback(item: QueueItem, user_id: UUID, keys: Collection[str]) -> dict[str, Feedback]:
    """Return what the reviewer gave, by key."""
    ids = [feedback_id(item, user_id, key) for key in keys]
    rows = Feedback.objects.for_workspace(item.workspace_id).filter(pk__in=ids)
    return {row.key: row for row in rows}


def scores_of(feedback: dict[str, Feedback]) -> dict[str, Any]:
    """Return the scores by key as `apps.annotation.rubric` takes them."""
    return {key: row.score for key, row in feedback.items()}
