"""Renders queues, items and reviews as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem, QueueReviewer
from apps.annotation.services.item_runs import load_runs
from apps.feedback.api.rendering import config_json
from apps.feedback.services.configs import configs_by_key
from apps.trace_store import Payload
from apps.tracing.api.v1.rendering import runs_json


def queues_json(workspace_id: UUID, queues: Sequence[AnnotationQueue]) -> list[dict[str, Any]]:
    """Return the queues without their rubrics, with the assigned reviewers, in one query."""
    rows = QueueReviewer.objects.for_workspace(workspace_id).select_related("user")
    reviewers: dict[UUID, list[dict[str, Any]]] = {}
    for row in rows.filter(queue__in=queues).order_by("created_at", "pk"):
        reviewers.setdefault(row.queue_id, []).append(reviewer_json(row))
    return [_queue_json(queue, reviewers.get(queue.pk, [])) for queue in queues]


def _queue_json(queue: AnnotationQueue, reviewers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": queue.pk,
        "tenant_id": queue.workspace_id,
        "name": queue.name,
        "description": queue.description,
        "queue_type": "single",
        "default_dataset": queue.default_dataset_id,
        "created_at": queue.created_at,
        "updated_at": queue.updated_at,
        "num_reviewers_per_item": queue.num_reviewers_per_item,
        "enable_reservations": queue.enable_reservations,
        "reservation_minutes": queue.reservation_minutes,
        "reviewer_access_mode": queue.reviewer_access_mode,
        "assigned_reviewers": reviewers,
        "run_rule_id": None,
        "source_rule_id": None,
        "metadata": queue.metadata,
    }


def queue_with_rubric_json(queue: AnnotationQueue) -> dict[str, Any]:
    """Return the queue with its rubric and the config of each key."""
    keys = [item["feedback_key"] for item in queue.rubric_items]
    configs = configs_by_key(queue.workspace_id, keys)
    items = [
        item
        | {
            "feedback_config_id": None if (config := configs.get(key)) is None else config.pk,
            "feedback_config": None if config is None else config_json(config),
        }
        for key, item in zip(keys, queue.rubric_items, strict=True)
    ]
    return queues_json(queue.workspace_id, [queue])[0] | {
        "rubric_instructions": queue.rubric_instructions,
        "rubric_items": items,
    }


def reviewer_json(row: QueueReviewer) -> dict[str, Any]:
    return {"id": row.user_id, "name": row.user.display_name, "email": row.user.email}


def added_run_json(item: QueueItem) -> dict[str, Any]:
    return {
        "id": item.pk,
        "run_id": item.run_id,
        "queue_id": item.queue_id,
        "added_at": item.added_at,
        "last_reviewed_time": item.last_reviewed_at,
        "source_proposed_example_id": item.source_proposed_example_id,
    }


def item_json(item: QueueItem) -> dict[str, Any]:
    return added_run_json(item) | {
        "item_type": "RUN",
        "project_id": item.project_id,
        "start_time": item.start_time,
        "thread_id": None,
    }


def status_json(review: ItemReview) -> dict[str, Any]:
    return {
        "queue_item_id": review.item_id,
        "status": review.status,
        "override_added_at": review.override_added_at,
        "is_archived": review.item.completed_at is not None,
    }


@dataclass(frozen=True, slots=True)
class ItemReviewers:
    """The reviewers of one item, in the order of their reviews."""

    completed_by: list[UUID] = field(default_factory=list)
    reserved_by: list[UUID] = field(default_factory=list)


def load_reviewers(
    workspace_id: UUID, items: Collection[QueueItem]
) -> Mapping[UUID, ItemReviewers]:
    """Return who completed or reserves the items, by item, in one query."""
    now = timezone.now()
    reviewers = {item.pk: ItemReviewers() for item in items}
    reviews = ItemReview.objects.for_workspace(workspace_id).filter(item_id__in=reviewers)
    for review in reviews.order_by("created_at", "pk"):
        entry = reviewers[review.item_id]
        if review.completed_at is not None:
            entry.completed_by.append(review.reviewer_id)
        elif review.is_reserved(now):
            entry.reserved_by.append(review.reviewer_id)
    return reviewers


def listed_items_json(workspace_id: UUID, items: Sequence[Any]) -> list[dict[str, Any]]:
    """Return items of `for_reviewer` with their reviewers."""
    reviewers = load_reviewers(workspace_id, items)
    return [item_json(item) | _review_fields(item, reviewers[item.pk]) for item in items]


def _review_fields(item: Any, reviewers: ItemReviewers) -> dict[str, Any]:
    return {
        "effective_added_at": item.effective_added_at,
        "completed_by": reviewers.completed_by,
        "reserved_by": reviewers.reserved_by,
        "assigned_to": [],
    }


def queue_runs_json(
    workspace_id: UUID,
    items: Sequence[Any],
    *,
    include_stats: bool = True,
    include_extra: bool = True,
) -> list[dict[str, Any]]:
    """Return the runs of items of `for_reviewer`, with fields of the queue."""
    payloads = set(Payload) if include_extra else set(Payload) - {Payload.EXTRA}
    runs = load_runs(workspace_id, items, payloads)
    shown = [item for item in items if item.pk in runs]
    reviewers = load_reviewers(workspace_id, shown)
    rendered = runs_json(workspace_id, [runs[item.pk] for item in shown])
    result = []
    for item, run in zip(shown, rendered, strict=True):
        fields = added_run_json(item)
        fields["queue_run_id"] = fields.pop("id")
        fields |= _review_fields(item, reviewers[item.pk])
        del fields["assigned_to"], fields["run_id"], fields["queue_id"]
        if not include_stats:
            run["feedback_stats"] = None
        result.append(run | fields)
    return result
