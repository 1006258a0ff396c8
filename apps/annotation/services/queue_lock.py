"""The lock of a queue for changes to several of its items or reviewers."""

from __future__ import annotations

from apps.annotation import errors
from apps.annotation.models import AnnotationQueue


def lock_queue(queue: AnnotationQueue) -> AnnotationQueue:
    """Lock the queue's row for this transaction and return it; raises `QueueNotFound`.

    Each transaction that changes several items of a queue takes this lock first: otherwise two of
    them could wait for each other's items. A queue that is deleted meanwhile leaves none behind.
    """
    rows = AnnotationQueue.objects.for_workspace(queue.workspace_id).filter(pk=queue.pk)
    locked = rows.select_for_update(no_key=True).first()
    if locked is None:
        raise errors.QueueNotFound
    return locked
