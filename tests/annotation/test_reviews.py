"""Reservations and completions of items by one and by several reviewers."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from django.utils import timezone

from apps.annotation import errors
from apps.annotation.models import ItemReview
from apps.annotation.services.queues import update_queue
from apps.annotation.services.reviewers import assign_reviewers, query_users, unassign_member
from apps.annotation.services.reviews import COMPLETED, VIEWED, open_next, set_status
from apps.annotation.services.sections import ReviewSection, query_section
from tests.console.conftest import signed_in
from tests.factories.annotation import fill_queue, make_queue
from tests.factories.tracing import stored_run

STATUS = "/annotation-queues/status"


def section(queue, user, name=ReviewSection.MINE):
    return [item.pk for item in query_section(queue, user.pk, name)]


def test_viewed_item_is_hidden_from_others_until_the_reservation_ends(queue, items, make_reviewer):
    ann, ben = make_reviewer(), make_reviewer()
    first, *others = [item.pk for item in items]

    set_status(item=items[0], reviewer_id=ann.pk, status=VIEWED)

    assert section(queue, ann) == [first, *others]
    assert section(queue, ben) == others
    assert section(queue, ben, ReviewSection.OTHERS) == [first]
    with pytest.raises(errors.QueueItemReserved):
        set_status(item=items[0], reviewer_id=ben.pk, status=COMPLETED)
    reviews = ItemReview.objects.for_workspace(queue.workspace_id)
    reviews.update(reserved_until=timezone.now() - timedelta(seconds=1))
    assert section(queue, ben) == [first, *others]
    set_status(item=items[0], reviewer_id=ben.pk, status=COMPLETED)
    items[0].refresh_from_db()
    assert items[0].completed_at is not None


def test_queue_without_reservations_hides_nothing(queue, items, make_reviewer):
    update_queue(queue=queue, changes={"enable_reservations": False})
    queue.refresh_from_db()
    set_status(item=items[0], reviewer_id=make_reviewer().pk, status=VIEWED)

    assert section(queue, make_reviewer()) == [item.pk for item in items]


def test_item_is_archived_by_the_last_of_its_reviewers(workspace, queue, items, make_reviewer):
    update_queue(queue=queue, changes={"num_reviewers_per_item": 2})
    queue.refresh_from_db()
    ann, ben, cem = (make_reviewer() for _ in range(3))
    first = items[0].pk

    set_status(item=items[0], reviewer_id=ann.pk, status=COMPLETED)

    assert first not in section(queue, ann)
    assert section(queue, ann, ReviewSection.OTHERS) == [first]
    assert first in section(queue, ben)
    set_status(item=items[0], reviewer_id=ben.pk, status=VIEWED)
    assert first not in section(queue, cem)
    set_status(item=items[0], reviewer_id=ben.pk, status=COMPLETED)
    assert section(queue, cem, ReviewSection.ARCHIVED) == [first]
    set_status(item=items[0], reviewer_id=ben.pk, status=None)
    assert first in section(queue, ben)


def test_changed_number_of_reviewers_applies_to_all_items(queue, items, make_reviewer):
    ann = make_reviewer()
    set_status(item=items[0], reviewer_id=ann.pk, status=COMPLETED)

    update_queue(queue=queue, changes={"num_reviewers_per_item": 2})
    queue.refresh_from_db()
    assert section(queue, ann, ReviewSection.ARCHIVED) == []

    update_queue(queue=queue, changes={"num_reviewers_per_item": 1})
    queue.refresh_from_db()
    assert section(queue, ann, ReviewSection.ARCHIVED) == [items[0].pk]


def test_item_without_a_number_needs_every_user_of_the_workspace(queue, items, make_reviewer):
    ann, ben = make_reviewer(), make_reviewer()
    update_queue(queue=queue, changes={"num_reviewers_per_item": None})
    users = list(query_users(queue.workspace_id))
    assert {ann, ben} <= set(users)
    for user in users[:-1]:
        set_status(item=items[0], reviewer_id=user.pk, status=COMPLETED)
    items[0].refresh_from_db()
    assert items[0].completed_at is None

    set_status(item=items[0], reviewer_id=users[-1].pk, status=COMPLETED)

    items[0].refresh_from_db()
    assert items[0].completed_at is not None


def test_every_assigned_reviewer_has_to_complete_the_item(queue, items, make_reviewer):
    ann, ben, stranger = (make_reviewer() for _ in range(3))
    assign_reviewers(queue=queue, identity_ids=[ann.pk, ben.pk])
    queue = update_queue(queue=queue, changes={"reviewer_access_mode": "assigned"})
    first = items[0].pk

    set_status(item=items[0], reviewer_id=ann.pk, status=VIEWED)

    assert first in section(queue, ben)
    assert section(queue, stranger) == []
    assert section(queue, stranger, ReviewSection.OTHERS) == [item.pk for item in items]
    with pytest.raises(errors.NotAnAssignedReviewer):
        set_status(item=items[0], reviewer_id=stranger.pk, status=COMPLETED)
    for user in (ann, ben):
        items[0].refresh_from_db()
        assert items[0].completed_at is None
        set_status(item=items[0], reviewer_id=user.pk, status=COMPLETED)
    items[0].refresh_from_db()
    assert items[0].completed_at is not None


def test_member_who_leaves_the_organization_is_not_assigned_any_more(
    workspace, queue, make_reviewer
):
    ann = make_reviewer()
    assign_reviewers(queue=queue, identity_ids=[ann.pk])

    unassign_member(workspace.organization_id, ann.pk)

    assert not queue.reviewers.exists()


def test_skipped_item_moves_to_the_end_of_the_own_order_alone(queue, items, make_reviewer):
    ann, ben = make_reviewer(), make_reviewer()
    ids = [item.pk for item in items]

    set_status(item=items[0], reviewer_id=ann.pk, status=None, override_added_at=timezone.now())

    assert section(queue, ann) == [*ids[1:], ids[0]]
    assert section(queue, ben) == ids


def test_next_item_is_reserved_for_one_reviewer(queue, items, make_reviewer):
    ann, ben = make_reviewer(), make_reviewer()

    assert open_next(queue=queue, reviewer_id=ann.pk) == items[0]
    assert open_next(queue=queue, reviewer_id=ben.pk) == items[1]
    assert open_next(queue=queue, reviewer_id=ann.pk) == items[0]
    assert open_next(queue=queue, reviewer_id=ann.pk, after=items[0]) == items[2]
    for item in items:
        reviewer = ben if item == items[1] else ann
        set_status(item=item, reviewer_id=reviewer.pk, status=COMPLETED)
    assert open_next(queue=queue, reviewer_id=ann.pk) is None


@pytest.mark.django_db(transaction=True)
def test_reviewers_at_the_same_time_get_different_items(queue, items, make_reviewer):
    users, opened, barrier = [make_reviewer() for _ in range(3)], [], Barrier(3)

    def open_one(user):
        barrier.wait(30)
        opened.append(open_next(queue=queue, reviewer_id=user.pk))
        connection.close()

    threads = [Thread(target=open_one, args=[user]) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {item.pk for item in opened} == {item.pk for item in items}


def test_api_sets_the_status_of_the_caller(api, queue, items):
    url = f"{STATUS}/{items[0].pk}"

    viewed = api.post(url, {"status": "viewed"})
    completed = api.post(
        f"/v1/platform/annotation-queues/items/{items[0].pk}/status", {"status": "completed"}
    )
    reopened = api.post(url, {"status": None, "override_added_at": "2030-01-01T00:00:00Z"})

    assert viewed.status_code == 200, viewed.content
    assert viewed.json() == {
        "queue_item_id": str(items[0].pk),
        "status": "viewed",
        "override_added_at": None,
        "is_archived": False,
    }
    assert (completed.json()["status"], completed.json()["is_archived"]) == ("completed", True)
    assert reopened.json() == {
        "queue_item_id": str(items[0].pk),
        "status": None,
        "override_added_at": "2030-01-01T00:00:00Z",
        "is_archived": False,
    }
    assert api.post(url, {"status": "done"}).status_code == 422
    assert api.post(f"{STATUS}/{queue.pk}", {"status": "viewed"}).status_code == 404


def test_annotator_reviews_and_changes_no_queue(workspace, queue, items, make_reviewer):
    client = signed_in(make_reviewer())
    headers = {"X-Tenant-Id": str(workspace.pk), "Accept": "application/json"}

    def post(path, body):
        return client.post(path, body, content_type="application/json", headers=headers)

    assert post(f"{STATUS}/{items[0].pk}", {"status": "completed"}).status_code == 200
    assert post("/annotation-queues", {"name": "a"}).status_code == 403
    assert post(f"/annotation-queues/{queue.pk}/runs", []).status_code == 403
    runs = client.get(f"/annotation-queues/{queue.pk}/runs", headers=headers)
    assert [run["id"] for run in runs.json()] == [str(item.run_id) for item in items]


def test_item_of_another_workspace_is_unknown(api, other_workspace):
    (item,) = fill_queue(make_queue(other_workspace), [stored_run(other_workspace)])

    assert api.post(f"{STATUS}/{item.pk}", {"status": "completed"}).status_code == 404
    assert not ItemReview.objects.for_workspace(other_workspace).exists()
