"""Errors of annotation queues, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class QueueNotFound(errors.NotFound):
    code, detail = "annotation_queue_not_found", "No such annotation queue."


class QueueIdTaken(errors.Conflict):
    code = "annotation_queue_id_taken"
    detail = "This annotation queue `id` cannot be used; choose another."


class QueueItemNotFound(errors.NotFound):
    code, detail = "queue_item_not_found", "The annotation queue has no such item."


class RunsNotFound(errors.NotFound):
    """Some runs are not in the workspace; `errors` names them."""

    code, detail = "runs_not_found", "Some runs are not in this workspace."


class BadRubric(errors.Invalid):
    code, detail = "bad_rubric", "The rubric is not valid."


class QueueItemReserved(errors.Conflict):
    """As many other reviewers as the item needs hold it."""

    code, detail = "queue_item_reserved", "Another reviewer has reserved this item."


class QueueItemCompleted(errors.Conflict):
    code = "queue_item_completed"
    detail = "This item has all its reviews; its scores are final."


class NotAnAssignedReviewer(errors.Forbidden):
    code = "not_an_assigned_reviewer"
    detail = "Only the assigned reviewers of this queue may review its items."


class ReviewerNotFound(errors.NotFound):
    code, detail = "reviewer_not_found", "No member of the workspace has this id."
