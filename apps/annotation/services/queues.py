"""Creating, changing and deleting annotation queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.annotation import errors
from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.rubric import RubricItem, check_count, parse_rubric
from apps.annotation.services.items import add_experiments
from apps.annotation.services.queue_lock import lock_queue
from apps.annotation.services.reviews import refresh_items
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.connections import raw_cursor, sql
from apps.core.tenancy import check_row_limit
from apps.datasets.services.datasets import get_dataset
from apps.feedback.services import configs as feedback_configs
from apps.organizations.models import ResourceType, Workspace
from apps.organizations.services import tags
from apps.trace_store import run_store

MAX_QUEUES = 1000
"""Of a workspace."""
_COMPLETION_FIELDS = frozenset({"num_reviewers_per_item", "reviewer_access_mode"})


def get_queue(workspace_id: UUID, queue_id: UUID) -> AnnotationQueue:
    """Return the workspace's queue; raises `QueueNotFound`."""
    queue = AnnotationQueue.objects.for_workspace(workspace_id).filter(pk=queue_id).first()
    if queue is None:
        raise errors.QueueNotFound
    return queue


@transaction.atomic
def create_queue(
    *,
    workspace_id: UUID,
    rubric_items: Sequence[RubricItem] = (),
    experiment_ids: Collection[UUID] = (),
    **fields: Any,
) -> AnnotationQueue:
    """Create a queue with the runs of the experiments.

    Raises `BadRubric`, `DatasetNotFound`, `ExperimentNotFound`, and `QueueIdTaken` for the id of
    another queue.
    """
    if fields.get("default_dataset_id") is not None:
        get_dataset(workspace_id, fields["default_dataset_id"])
    rubric = _parse_rubric(workspace_id, rubric_items)
    queue = AnnotationQueue(workspace_id=workspace_id, rubric_items=rubric, **fields)
    try:
        with transaction.atomic():
            queue.save(force_insert=True)
    except IntegrityError:
        raise errors.QueueIdTaken from None
    queues = AnnotationQueue.objects.for_workspace(workspace_id)
    check_row_limit(queues, MAX_QUEUES, "annotation queues of a workspace")
    _record(Action.ANNOTATION_QUEUE_CREATED, queue, after=_audited(queue))
    if experiment_ids:
        add_experiments(queue=queue, experiment_ids=experiment_ids)
    return queue


@transaction.atomic
def update_queue(
    *,
    queue: AnnotationQueue,
    changes: Mapping[str, Any],
    rubric_items: Sequence[RubricItem] | None = None,
) -> AnnotationQueue:
    """Set the changed fields; `rubric_items` replaces the rubric. Raises as `create_queue`."""
    locked = lock_queue(queue)
    if changes.get("default_dataset_id") is not None:
        get_dataset(locked.workspace_id, changes["default_dataset_id"])
    before = _audited(locked)
    for name, value in changes.items():
        setattr(locked, name, value)
    if rubric_items is not None:
        locked.rubric_items = _parse_rubric(
            locked.workspace_id, rubric_items, current=locked.rubric_items
        )
    locked.updated_at = timezone.now()
    locked.save()
    if _COMPLETION_FIELDS & changes.keys():
        refresh_items(locked)
    _record(Action.ANNOTATION_QUEUE_UPDATED, locked, before=before, after=_audited(locked))
    return locked


def _parse_rubric(
    workspace_id: UUID,
    items: Sequence[RubricItem],
    current: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    check_count(items)
    keys = {item.feedback_key for item in items if len(item.feedback_key) <= 1000}
    configs = feedback_configs.configs_by_key(
        workspace_id, {key.replace("\x00", "") for key in keys}
    )
    return parse_rubric(items, configs, current)


@transaction.atomic
def delete_queues(*, queues: Sequence[AnnotationQueue]) -> None:
    """Delete queues of one workspace with their items; runs and feedback stay."""
    for queue in sorted(queues, key=lambda queue: queue.pk):
        try:
            locked = lock_queue(queue)
        except errors.QueueNotFound:  # deleted at the same time
            continue
        _record(Action.ANNOTATION_QUEUE_DELETED, queue, before=_audited(queue))
        tags.delete_taggings(
            workspace_id=queue.workspace_id,
            resource_type=ResourceType.QUEUE,
            resource_id=queue.pk,
        )
        _delete_rows("queue_id = %s", queue.pk)
        locked.delete()


def delete_all(workspace: Workspace) -> None:
    """Delete the queues of a deleted workspace."""
    _delete_rows("workspace_id = %s", workspace.pk)
    AnnotationQueue.objects.for_workspace(workspace).delete()


def _delete_rows(condition: str, value: UUID) -> None:
    # Statements of their own: the ORM would load each item to find its reviews. Items come first:
    # the deletion waits for their reviews in progress, which the second statement then sees.
    with raw_cursor() as cursor:
        for table in ("annotation_queueitem", "annotation_itemreview"):
            cursor.execute(sql(f"DELETE FROM {table} WHERE {condition}"), [value])  # noqa: S608


def queues_with_run(workspace_id: UUID, run_id: UUID) -> list[AnnotationQueue]:
    """Return the queues that have the run, newest first; raises `RunsNotFound`."""
    if not run_store.find_existing_ids(workspace_id, [run_id]):
        raise errors.RunsNotFound
    items = QueueItem.objects.for_workspace(workspace_id).filter(run_id=run_id)
    rows = AnnotationQueue.objects.for_workspace(workspace_id)
    queues = rows.without_rubric().filter(pk__in=items.values("queue_id"))
    return list(queues.order_by("-created_at", "-pk"))


def _audited(queue: AnnotationQueue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "description": queue.description,
        "num_reviewers_per_item": queue.num_reviewers_per_item,
        "reviewer_access_mode": queue.reviewer_access_mode,
        "feedback_keys": [item["feedback_key"] for item in queue.rubric_items],
    }


def _record(
    action: Action,
    queue: AnnotationQueue,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    record(
        action,
        Target("annotation_queue", queue.pk, queue.name),
        before=before,
        after=after,
        workspace_id=queue.workspace_id,
    )
