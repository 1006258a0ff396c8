"""The sections of a queue, as one reviewer sees them: every item is in exactly one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem
from apps.annotation.querysets import QueueItemQuerySet
from apps.annotation.services.reviewers import is_reviewer, required_reviews


class ReviewSection(StrEnum):
    """The values are on the wire."""

    MINE = "needs_my_review"
    OTHERS = "needs_others_review"
    ARCHIVED = "archived"


def query_section(
    queue: AnnotationQueue, reviewer_id: UUID, section: ReviewSection
) -> QueueItemQuerySet:
    """Return the items of the section in the reviewer's order.

    An item needs others' review if the reviewer completed it, is not assigned to the queue, or if
    as many others as it needs have reserved it.
    """
    items = query_items(queue, reviewer_id)
    if section is ReviewSection.ARCHIVED:
        return items.archived()
    if not is_reviewer(queue, reviewer_id):
        return items.pending() if section is ReviewSection.OTHERS else items.none()
    reserved_ids = query_reserved(queue, reviewer_id, timezone.now())
    pending = items.pending()
    mine = pending.unreviewed().exclude(pk__in=reserved_ids)
    if section is ReviewSection.MINE:
        return mine
    return pending.filter(pk__in=reserved_ids) | pending.reviewed()


def query_items(queue: AnnotationQueue, reviewer_id: UUID) -> QueueItemQuerySet:
    """Return all items of the queue in the reviewer's order."""
    items = QueueItem.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    return items.for_reviewer(reviewer_id)


def find_section(queue: AnnotationQueue, reviewer_id: UUID, item: QueueItem) -> ReviewSection:
    if item.completed_at is not None:
        return ReviewSection.ARCHIVED
    mine = query_section(queue, reviewer_id, ReviewSection.MINE).filter(pk=item.pk)
    return ReviewSection.MINE if mine.exists() else ReviewSection.OTHERS


def query_reserved(
    queue: AnnotationQueue, reviewer_id: UUID, now: datetime
) -> QuerySet[ItemReview, Any]:
    """Return the ids of pending items that as many other reviewers as they need have reserved.

    A query, which others embed: there may be thousands. Items of assigned reviewers need each of
    them, so none excludes another.
    """
    reviews = ItemReview.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    if not queue.enable_reservations or queue.needs_all_assigned:
        return reviews.none().values("item_id")
    is_done = Q(completed_at__isnull=False)
    is_reserved = Q(reserved_until__gt=now, completed_at=None) & ~Q(reviewer_id=reviewer_id)
    counted = (
        reviews.filter(is_done | is_reserved, item__completed_at=None)
        .order_by()
        .values("item_id")
        .annotate(count=Count("pk"), reserved_count=Count("pk", filter=is_reserved))
    )
    full = counted.filter(reserved_count__gt=0, count__gte=required_reviews(queue))
    return full.values("item_id")


def count_waiting(workspace_id: UUID, queue_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the number of items that need reviews, by queue, in one query."""
    items = QueueItem.objects.for_workspace(workspace_id).filter(queue_id__in=queue_ids)
    counts = items.pending().order_by().values_list("queue_id").annotate(count=Count("pk"))
    return dict(counts)


def count_items(workspace_id: UUID, queue_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the number of all items, also of archived ones, by queue, in one query."""
    items = QueueItem.objects.for_workspace(workspace_id).filter(queue_id__in=queue_ids)
    return dict(items.order_by().values_list("queue_id").annotate(count=Count("pk")))
