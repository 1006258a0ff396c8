"""Chainable queries on annotation queues and their items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import models
from django.db.models import F, FilteredRelation, Func, Q
from django.db.models.functions import Coalesce

if TYPE_CHECKING:
    from apps.annotation.models import (  # noqa: F401
        AnnotationQueue,
        ItemReview,
        QueueItem,
        QueueReviewer,
    )


class AnnotationQueueQuerySet(models.QuerySet["AnnotationQueue"]):
    def without_rubric(self) -> AnnotationQueueQuerySet:
        """Queues for lists: their rubrics may be large, and are loaded when they are read."""
        return self.defer("rubric_items", "rubric_instructions")

    def with_rubric_keys(self) -> AnnotationQueueQuerySet:
        """Add the feedback keys of the rubric, in order, as `rubric_keys`."""
        keys = Func(
            "rubric_items",
            function="jsonb_path_query_array",
            template="%(function)s(%(expressions)s, '$[*].feedback_key')",
            output_field=models.JSONField(),
        )
        return self.annotate(rubric_keys=keys)


class QueueReviewerQuerySet(models.QuerySet["QueueReviewer"]):
    pass


class QueueItemQuerySet(models.QuerySet["QueueItem"]):
    def pending(self) -> QueueItemQuerySet:
        """Items that need more reviews."""
        return self.filter(completed_at=None)

    def archived(self) -> QueueItemQuerySet:
        """Items with as many reviews as their queue requires."""
        return self.filter(completed_at__isnull=False)

    def for_reviewer(self, reviewer_id: UUID) -> QueueItemQuerySet:
        """Join the reviewer's review as `own`, and sort by the reviewer's order of the queue.

        The order is by `effective_added_at`, which the reviewer may change by skipping an item.
        """
        own = FilteredRelation("reviews", condition=Q(reviews__reviewer_id=reviewer_id))
        place = Coalesce(F("own__override_added_at"), "added_at")
        rows: Any = self.annotate(own=own).annotate(effective_added_at=place)
        sorted_rows: QueueItemQuerySet = rows.order_by("effective_added_at", "pk")
        return sorted_rows

    def reviewed(self) -> QueueItemQuerySet:
        """Items of `for_reviewer` that the reviewer completed."""
        return self.filter(Q(own__completed_at__isnull=False))

    def unreviewed(self) -> QueueItemQuerySet:
        """Items of `for_reviewer` that the reviewer has not completed."""
        return self.filter(Q(own__completed_at=None))


class ItemReviewQuerySet(models.QuerySet["ItemReview"]):
    def completed(self) -> ItemReviewQuerySet:
        return self.filter(completed_at__isnull=False)
