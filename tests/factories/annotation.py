from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.rubric import RubricItem
from apps.annotation.services.items import RunReference, add_runs
from apps.annotation.services.queues import create_queue
from apps.annotation.services.reviewers import assign_reviewers
from apps.annotation.services.reviews import VIEWED, set_status
from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceMembershipFactory


def make_queue(workspace: Workspace, name: str = "queue", **fields: Any) -> AnnotationQueue:
    return create_queue(workspace_id=workspace.pk, name=name, **fields)


def fill_queue(queue: AnnotationQueue, run_ids: Sequence[UUID]) -> list[QueueItem]:
    references = [RunReference(run_id=run_id) for run_id in run_ids]
    return add_runs(queue=queue, references=references)


def create_queue_rows(workspace: Workspace, mark: str, run_id: UUID) -> dict[str, UUID]:
    """Create a row of each table of annotation queues, marked with the name.

    Returns a value for each route parameter.
    """
    queue = make_queue(
        workspace,
        mark,
        description=mark,
        rubric_instructions=mark,
        rubric_items=[RubricItem(feedback_key=mark, description=mark)],
        metadata={mark: mark},
    )
    (item,) = fill_queue(queue, [run_id])
    user = WorkspaceMembershipFactory(workspace=workspace).user
    assign_reviewers(queue=queue, identity_ids=[user.pk])
    set_status(item=item, reviewer_id=user.pk, status=VIEWED)
    return {"queue_id": queue.pk, "queue_item_id": item.pk}
