"""Data of the review page: one item of a queue, its run, and the rubric with given scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.annotation import rubric
from apps.annotation.item_cursors import items_after, items_before
from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.services.items import get_item
from apps.annotation.services.reviewers import is_reviewer, names_of
from apps.annotation.services.reviews import find_holders
from apps.annotation.services.scoring import given_feedback, scores_of
from apps.annotation.services.sections import ReviewSection, query_items, query_section
from apps.core.errors import NotFound
from apps.tracing.models import Project
from apps.tracing.pages.feedback_form import KeyChoices, choices_by_key, list_key_choices
from apps.tracing.pages.run_views import RunPageData, load_run
from apps.tracing.services import get_project


@dataclass(frozen=True)
class ReviewPage:
    """An item for one reviewer, and its place among all items of the queue."""

    queue: AnnotationQueue
    item: QueueItem
    project: Project
    run: RunPageData
    review: ItemReview | None
    position: int
    """From 1."""
    total: int
    previous_id: UUID | None
    next_id: UUID | None
    may_review: bool
    holders: Sequence[str] = ()
    """Names of the others who review the item now, if they are as many as it needs."""

    @property
    def is_completed(self) -> bool:
        """Whether the reviewer completed the item, or the item has all its reviews."""
        is_own = self.review is not None and self.review.completed_at is not None
        return is_own or self.item.completed_at is not None

    @property
    def is_open(self) -> bool:
        """Whether the reviewer may give scores."""
        return self.may_review and not self.is_completed and not self.holders

    @property
    def is_blind(self) -> bool:
        """Whether scores are hidden: they would sway those who may still review the item."""
        return self.may_review and not self.is_completed


def find_item(queue: AnnotationQueue, user_id: UUID, text: str) -> QueueItem | None:
    """Return the item with the id, or the user's first; None for an empty queue.

    Raises `QueueItemNotFound`.
    """
    if not text:
        return query_section(queue, user_id, ReviewSection.MINE).first()
    try:
        return get_item(queue, UUID(text))
    except ValueError:
        raise NotFound from None


def load_page(queue: AnnotationQueue, user_id: UUID, item: QueueItem) -> ReviewPage:
    """Load the item with its run; raises `NotFound` for a run that is being deleted."""
    project = get_project(queue.workspace_id, item.project_id)
    rows = query_items(queue, user_id)
    placed: Any = rows.get(pk=item.pk)
    before, after = items_before(rows, placed), items_after(rows, placed)
    previous, following = before.last(), after.first()
    reviews = ItemReview.objects.for_workspace(queue.workspace_id).filter(item=item)
    review = reviews.filter(reviewer_id=user_id).first()
    is_done = item.completed_at is not None or (review is not None and review.completed_at)
    holders = [] if is_done else find_holders(item, user_id, timezone.now())
    return ReviewPage(
        queue,
        item,
        project,
        load_run(project, item.run_id),
        review,
        position=before.count() + 1,
        total=rows.count(),
        previous_id=None if previous is None else previous.pk,
        next_id=None if following is None else following.pk,
        may_review=is_reviewer(queue, user_id),
        holders=names_of(queue.workspace_id, holders) if holders else (),
    )


def load_choices(queue: AnnotationQueue, user_id: UUID, item: QueueItem) -> list[KeyChoices]:
    """Return the shown keys of the rubric with what the user gave; without a rubric, all keys."""
    if not queue.rubric_items:
        choices = list_key_choices(queue.workspace_id, item.project_id)
        given = given_feedback(item, user_id, [choice.key for choice in choices])
        return [_with_given(choice, given.get(choice.key)) for choice in choices]
    keys = [entry["feedback_key"] for entry in queue.rubric_items]
    by_key = choices_by_key(queue.workspace_id, keys)
    given = given_feedback(item, user_id, keys)
    scores = scores_of(given)
    return [
        replace(
            _with_given(by_key[entry["feedback_key"]], given.get(entry["feedback_key"])),
            description=entry.get("description") or "",
            is_required=rubric.is_required(entry, scores),
        )
        for entry in queue.rubric_items
        if rubric.is_visible(entry, scores)
    ]


def _with_given(choice: KeyChoices, row: Any) -> KeyChoices:
    if row is None:
        return choice
    return replace(choice, score=row.score, comment=row.comment or "")


def list_missing(queue: AnnotationQueue, user_id: UUID, item: QueueItem) -> Sequence[str]:
    """Return the required keys without feedback of the user."""
    keys = [entry["feedback_key"] for entry in queue.rubric_items]
    return rubric.missing_keys(queue.rubric_items, scores_of(given_feedback(item, user_id, keys)))
