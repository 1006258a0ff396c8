"""Reservations and completions of items: one reviewer, one item, one transaction."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone

from apps.annotation import errors
from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.services.reviewers import assigned_ids, is_reviewer, required_reviews
from apps.annotation.services.sections import ReviewSection, query_section

VIEWED, COMPLETED = "viewed", "completed"
_NEXT_ATTEMPTS = 20


@transaction.atomic
def set_status(
    *,
    item: QueueItem,
    reviewer_id: UUID,
    status: str | None,
    override_added_at: datetime | None = None,
) -> ItemReview:
    """Set the reviewer's status of the item and return their review. Safe to repeat.

    `viewed` reserves the item, `completed` ends the review, None takes both back, so that the
    reviewer sees the item again. `override_added_at` moves it in the reviewer's own order.
    Raises `QueueItemReserved` if enough others hold it, and `NotAnAssignedReviewer`.
    """
    item = _lock(item)
    queue, now = item.queue, timezone.now()
    if not is_reviewer(queue, reviewer_id):
        raise errors.NotAnAssignedReviewer
    reviews = ItemReview.objects.for_workspace(item.workspace_id).filter(item=item)
    review = reviews.filter(reviewer_id=reviewer_id).first() or ItemReview(
        workspace_id=item.workspace_id,
        queue=queue,
        item=item,
        reviewer_id=reviewer_id,
        project_id=item.project_id,
        run_id=item.run_id,
    )
    is_open = item.completed_at is None and review.completed_at is None
    if status is not None and is_open and find_holders(item, reviewer_id, now):
        raise errors.QueueItemReserved
    if status is None:
        review.viewed_at = review.reserved_until = review.completed_at = None
    elif status == VIEWED:
        review.viewed_at = now
        if queue.enable_reservations and review.completed_at is None:
            review.reserved_until = now + timedelta(minutes=queue.reservation_minutes)
    else:
        review.completed_at = review.completed_at or now
        review.reserved_until = None
        item.last_reviewed_at = now
    if override_added_at is not None:
        review.override_added_at = override_added_at
    review.save()
    _refresh_item(item, queue, now)
    return review


def open_next(
    *, queue: AnnotationQueue, reviewer_id: UUID, after: QueueItem | None = None
) -> QueueItem | None:
    """Reserve the reviewer's first item, or the first after the given one; None at the end.

    Two reviewers at the same time get different items: one that another has just reserved is
    passed over.
    """
    rows = query_section(queue, reviewer_id, ReviewSection.MINE)
    candidates = list(rows.values_list("pk", flat=True)[: _NEXT_ATTEMPTS + 1])
    if after is not None and after.pk in candidates:
        position = candidates.index(after.pk)
        candidates = candidates[position + 1 :] + candidates[:position]
    items = QueueItem.objects.for_workspace(queue.workspace_id)
    for pk in candidates:
        item = items.filter(pk=pk).select_related("queue").first()
        if item is None:
            continue
        try:
            set_status(item=item, reviewer_id=reviewer_id, status=VIEWED)
        except (errors.QueueItemReserved, errors.QueueItemNotFound):
            continue
        return item
    return None


def _lock(item: QueueItem) -> QueueItem:
    """Lock the item, so that reservations and completions of one item come one by one."""
    rows = QueueItem.objects.for_workspace(item.workspace_id).select_related("queue")
    locked = rows.select_for_update(of=("self",), no_key=True).filter(pk=item.pk).first()
    if locked is None:
        raise errors.QueueItemNotFound
    return locked


def find_holders(item: QueueItem, reviewer_id: UUID, now: datetime) -> list[UUID]:
    """Return the others who have done or reserved all reviews that the item needs; else none."""
    queue = item.queue
    if not queue.enable_reservations or queue.needs_all_assigned:
        return []
    others = ItemReview.objects.for_workspace(item.workspace_id).filter(item=item)
    others = others.exclude(reviewer_id=reviewer_id).order_by("created_at", "pk")
    taken = others.filter(Q(completed_at__isnull=False) | Q(reserved_until__gt=now))
    holders = list(taken.values_list("reviewer_id", flat=True))
    return holders if len(holders) >= required_reviews(queue) else []


def _refresh_item(item: QueueItem, queue: AnnotationQueue, now: datetime) -> None:
    """Archive the item if it has its reviews, and else take it back to the queue."""
    reviews = ItemReview.objects.for_workspace(item.workspace_id).filter(item=item).completed()
    if queue.needs_all_assigned:
        reviews = reviews.filter(reviewer_id__in=assigned_ids(queue))
    is_complete = reviews.count() >= required_reviews(queue)
    item.completed_at = (item.completed_at or now) if is_complete else None
    item.save(update_fields=["completed_at", "last_reviewed_at"])


def refresh_items(queue: AnnotationQueue) -> None:
    """Apply a changed number of reviewers to all items.

    In the caller's transaction, which has locked the queue.
    """
    condition = Q(reviews__completed_at__isnull=False)
    if queue.needs_all_assigned:
        condition &= Q(reviews__reviewer_id__in=assigned_ids(queue))
    items = QueueItem.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    counted = items.annotate(review_count=Count("reviews", filter=condition)).order_by()
    required = required_reviews(queue)
    done = counted.filter(review_count__gte=required)
    items.pending().filter(pk__in=done.values("pk")).update(completed_at=timezone.now())
    items.archived().exclude(pk__in=done.values("pk")).update(completed_at=None)
