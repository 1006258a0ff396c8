"""Deleted runs, projects, queues and workspaces leave no rows of queues behind."""

from __future__ import annotations

import pytest

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem, QueueReviewer
from apps.annotation.services.queues import delete_queues
from apps.annotation.services.reviewers import assign_reviewers
from apps.annotation.services.reviews import VIEWED, set_status
from apps.datasets.services.datasets import delete_dataset
from apps.datasets.services.removal import remove_deleted
from apps.organizations.services.workspaces import delete_workspace
from apps.trace_store import run_store
from tests.factories.annotation import make_queue
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceFactory

MODELS = (AnnotationQueue, QueueItem, ItemReview, QueueReviewer)


@pytest.fixture
def reviewed(queue, items, make_reviewer):
    """The items, each with a review, in a queue with a reviewer."""
    reviewer = make_reviewer()
    assign_reviewers(queue=queue, identity_ids=[reviewer.pk])
    for item in items:
        set_status(item=item, reviewer_id=reviewer.pk, status=VIEWED)
    return items


def count_rows(workspace):
    return [model.objects.for_workspace(workspace).count() for model in MODELS]


def test_removed_traces_leave_their_queues(workspace, project, reviewed):
    first = reviewed[0]

    assert run_store.delete_traces(workspace.pk, project.pk, [first.trace_id]) == 1

    assert count_rows(workspace) == [1, 2, 2, 1]
    remaining = QueueItem.objects.for_workspace(workspace).values_list("pk", flat=True)
    assert first.pk not in remaining


def test_runs_of_a_deleted_project_leave_their_queues(workspace, project, reviewed):
    assert run_store.delete_project_runs(workspace.pk, project.pk) == 3

    assert count_rows(workspace) == [1, 0, 0, 1]


def test_run_with_the_same_id_in_another_project_stays_in_its_queue(workspace, project, reviewed):
    QueueItem.objects.for_workspace(workspace).filter(pk=reviewed[0].pk).update(
        project_id=workspace.pk
    )
    ItemReview.objects.for_workspace(workspace).filter(item=reviewed[0]).update(
        project_id=workspace.pk
    )

    run_store.delete_project_runs(workspace.pk, project.pk)

    assert count_rows(workspace) == [1, 1, 1, 1]


def test_deleted_queue_takes_its_items_with_it(workspace, queue, reviewed):
    delete_queues(queues=[queue])

    assert count_rows(workspace) == [0, 0, 0, 0]


def test_deleted_workspace_takes_its_queues_with_it(workspace, reviewed):
    WorkspaceFactory(organization=workspace.organization)
    delete_workspace(workspace=workspace)

    assert count_rows(workspace) == [0, 0, 0, 0]


def test_removed_dataset_is_no_default_any_more(workspace, settings):
    settings.DATASET_RESTORE_DAYS = 0
    dataset = make_dataset(workspace)
    queue = make_queue(workspace, default_dataset_id=dataset.pk)
    delete_dataset(dataset=dataset)

    assert remove_deleted() == 1

    queue.refresh_from_db()
    assert queue.default_dataset_id is None
