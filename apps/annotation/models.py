"""Annotation queues: runs that wait for feedback of people, and their reviews (ADR 0039)."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.annotation.querysets import (
    AnnotationQueueQuerySet,
    ItemReviewQuerySet,
    QueueItemQuerySet,
    QueueReviewerQuerySet,
)
from apps.core.tenancy import TenantManager, WorkspaceOwned

NAME_LENGTH = 1000
DEFAULT_RESERVATION_MINUTES = 15


class ReviewerAccessMode(models.TextChoices):
    """Who reviews the items of a queue; the values are on the wire."""

    ANY = "any", "Anyone in the workspace"
    ASSIGNED = "assigned", "Every assigned reviewer"


class AnnotationQueue(WorkspaceOwned):
    """A named list of runs to review, with the rubric that reviewers fill in."""

    created_at = models.DateTimeField(default=timezone.now)
    """The time that the client sent, or the server time if it sent none."""
    updated_at = models.DateTimeField(default=timezone.now)
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.TextField(null=True)  # noqa: DJ001  (null and "" differ on the wire)
    default_dataset = models.ForeignKey(
        "datasets.Dataset", models.SET_NULL, null=True, related_name="+", db_index=False
    )
    """The dataset to which reviewers add items."""
    num_reviewers_per_item = models.PositiveSmallIntegerField(null=True, default=1)
    """The number of reviews that complete an item; null for each member of the workspace."""
    reviewer_access_mode = models.CharField(
        max_length=10, choices=ReviewerAccessMode, default=ReviewerAccessMode.ANY
    )
    enable_reservations = models.BooleanField(default=True)
    """Whether an item that a reviewer opens is hidden from others for a while."""
    reservation_minutes = models.PositiveSmallIntegerField(default=DEFAULT_RESERVATION_MINUTES)
    rubric_instructions = models.TextField(null=True)  # noqa: DJ001  (null: none)
    rubric_items = models.JSONField(default=list)
    """The feedback keys to fill in, in order; see `apps.annotation.rubric`."""
    metadata = models.JSONField(null=True)

    objects = TenantManager(AnnotationQueueQuerySet)
    unscoped = AnnotationQueueQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "-created_at", "-id"], name="annotation_queue_newest"
            ),
            models.Index(
                fields=["default_dataset"],
                condition=Q(default_dataset__isnull=False),
                name="annotation_queue_dataset",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def needs_all_assigned(self) -> bool:
        return self.reviewer_access_mode == ReviewerAccessMode.ASSIGNED


class QueueReviewer(WorkspaceOwned):
    """A user who is assigned to a queue."""

    queue = models.ForeignKey(
        AnnotationQueue, models.CASCADE, related_name="reviewers", db_index=False
    )
    user = models.ForeignKey("organizations.User", models.CASCADE, related_name="+")

    objects = TenantManager(QueueReviewerQuerySet)
    unscoped = QueueReviewerQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["queue", "user"], name="queue_reviewer_once")
        ]
        indexes = [models.Index(fields=["workspace", "user"], name="queue_reviewer_of_workspace")]

    def __str__(self) -> str:
        return f"{self.user_id} of {self.queue_id}"


class QueueItem(WorkspaceOwned):
    """A run in a queue. Runs are behind `RunStore`, so there is no foreign key to it.

    Locking the row serializes its reviews.
    """

    queue = models.ForeignKey(AnnotationQueue, models.CASCADE, related_name="items", db_index=False)
    project_id = models.UUIDField()
    run_id = models.UUIDField()
    trace_id = models.UUIDField()
    start_time = models.DateTimeField()
    """Start time of the run."""
    source_proposed_example_id = models.UUIDField(null=True)
    """The suggested example that the item was made from, if the client names one."""
    added_at = models.DateTimeField(default=timezone.now)
    """The position in the queue, oldest first; a client may change it."""
    last_reviewed_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    """When the item got as many reviews as its queue requires: it is archived then."""

    objects = TenantManager(QueueItemQuerySet)
    unscoped = QueueItemQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["queue", "run_id"], name="queue_item_once")]
        indexes = [
            models.Index(fields=["workspace", "run_id"], name="queue_item_of_run"),
            models.Index(fields=["queue", "added_at", "id"], name="queue_item_order"),
            models.Index(
                fields=["queue", "added_at", "id"],
                condition=Q(completed_at=None),
                name="queue_item_pending",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} in {self.queue_id}"


class ItemReview(WorkspaceOwned):
    """The state of an item for one reviewer: reserved, skipped to a later place, or completed."""

    queue = models.ForeignKey(AnnotationQueue, models.CASCADE, related_name="+", db_index=False)
    item = models.ForeignKey(QueueItem, models.CASCADE, related_name="reviews", db_index=False)
    reviewer_id = models.UUIDField()
    """The user, or the key of a caller without a user."""
    # The run of the item, by which the removal of runs finds the reviews.
    project_id = models.UUIDField()
    run_id = models.UUIDField()
    viewed_at = models.DateTimeField(null=True)
    """When the reviewer opened the item last."""
    reserved_until = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    override_added_at = models.DateTimeField(null=True)
    """The place of the item in the reviewer's own order."""

    objects = TenantManager(ItemReviewQuerySet)
    unscoped = ItemReviewQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["item", "reviewer_id"], name="item_review_once")
        ]
        indexes = [
            models.Index(fields=["workspace", "run_id"], name="item_review_of_run"),
            models.Index(
                fields=["queue", "reserved_until"],
                condition=Q(reserved_until__isnull=False),
                name="item_review_reserved",
            ),
            models.Index(fields=["queue", "reviewer_id"], name="item_review_of_reviewer"),
        ]

    def __str__(self) -> str:
        return f"{self.reviewer_id} on {self.item_id}"

    def is_reserved(self, now: datetime) -> bool:
        return self.reserved_until is not None and self.reserved_until > now

    @property
    def status(self) -> str | None:
        """The status on the wire."""
        if self.completed_at is not None:
            return "completed"
        return None if self.viewed_at is None else "viewed"
