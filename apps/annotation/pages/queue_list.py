"""Data of the list of queues, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Q

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem

PAGE_SIZE = 50


@dataclass(frozen=True)
class QueueRow:
    """A queue with the numbers of its items."""

    queue: AnnotationQueue
    waiting: int
    done: int
    mine: int
    """Items that the user completed."""
    last_reviewed_at: datetime | None


@dataclass(frozen=True)
class QueueList:
    rows: Sequence[QueueRow]
    next_offset: int | None


def load_list(workspace_id: UUID, user_id: UUID, *, text: str, offset: int) -> QueueList:
    """Return a page of the queues whose name contains the text, newest first."""
    queues = AnnotationQueue.objects.for_workspace(workspace_id).without_rubric()
    if text:
        queues = queues.filter(name__icontains=text)
    ordered = queues.order_by("-created_at", "-pk")
    candidates = list(ordered[offset : offset + PAGE_SIZE + 1])
    page = candidates[:PAGE_SIZE]
    counts = _count_items(workspace_id, page)
    mine = _count_reviews(workspace_id, user_id, page)
    rows = [
        QueueRow(
            queue,
            waiting=counts.get(queue.pk, {}).get("waiting", 0),
            done=counts.get(queue.pk, {}).get("done", 0),
            mine=mine.get(queue.pk, 0),
            last_reviewed_at=counts.get(queue.pk, {}).get("last"),
        )
        for queue in page
    ]
    return QueueList(rows, offset + PAGE_SIZE if len(candidates) > PAGE_SIZE else None)


def _count_items(workspace_id: UUID, queues: Sequence[AnnotationQueue]) -> dict[UUID, Any]:
    items = QueueItem.objects.for_workspace(workspace_id).filter(queue__in=queues)
    counts = (
        items.order_by()
        .values("queue_id")
        .annotate(
            waiting=Count("pk", filter=Q(completed_at=None)),
            done=Count("pk", filter=Q(completed_at__isnull=False)),
            last=Max("last_reviewed_at"),
        )
    )
    return {row["queue_id"]: row for row in counts}


def _count_reviews(
    workspace_id: UUID, user_id: UUID, queues: Sequence[AnnotationQueue]
) -> dict[UUID, int]:
    reviews = ItemReview.objects.for_workspace(workspace_id).completed()
    reviews = reviews.filter(reviewer_id=user_id, queue__in=queues)
    return dict(reviews.order_by().values_list("queue_id").annotate(count=Count("pk")))
