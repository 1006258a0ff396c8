"""A member who attacks with annotation queues: foreign rows, large rubrics, races, costly reads."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.annotation.models import AnnotationQueue, ItemReview, QueueItem, QueueReviewer
from apps.annotation.services.items import add_rows, remove_items
from apps.annotation.services.queue_lock import lock_queue
from apps.annotation.services.queues import delete_queues, update_queue
from apps.annotation.services.reviewers import assign_reviewers, unassign_reviewer
from apps.annotation.services.reviews import COMPLETED, VIEWED, set_status
from apps.annotation.services.sections import ReviewSection, query_section
from apps.organizations.permissions import Permission
from apps.trace_store.postgres import payload_storage
from tests.console.conftest import signed_in
from tests.factories.annotation import fill_queue, make_queue
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceMembershipFactory
from tests.factories.tracing import stored_run
from tests.tracing.conftest import forget_known_partitions

__all__ = ["forget_known_partitions"]

QUEUES = "/annotation-queues"
ITEMS = "/v1/platform/annotation-queues"
LONG = "x" * 4000
PAYLOAD_BYTES = 2_000_000
KEYS_SQL = '"annotation_annotationqueue"."rubric_items", \'$[*].feedback_key\''


@pytest.fixture
def foreign(other_workspace) -> dict[str, str]:
    """Ids of rows of another workspace."""
    queue = make_queue(other_workspace)
    (item,) = fill_queue(queue, [stored_run(other_workspace)])
    member = WorkspaceMembershipFactory(workspace=other_workspace)
    return {
        "queue": str(queue.pk),
        "item": str(item.pk),
        "run": str(item.run_id),
        "project": str(item.project_id),
        "user": str(member.user_id),
        "member": str(member.pk),
        "dataset": str(make_dataset(other_workspace).pk),
    }


def test_ids_of_another_workspace_in_bodies_are_unknown(api, queue, items, foreign):
    base, reviewers = f"{QUEUES}/{queue.pk}", f"{ITEMS}/{queue.pk}/reviewers"
    located = {"run_id": foreign["run"], "session_id": foreign["project"]}
    attempts: list[tuple[str, Any]] = [
        (f"{base}/runs", [foreign["run"]]),
        (f"{base}/runs", {"runs": [{"run_id": foreign["run"]}]}),
        (f"{base}/runs/by-key", [located | {"start_time": "2026-01-01T00:00:00Z"}]),
        (f"{ITEMS}/{queue.pk}/items", {"items": [located]}),
        (f"{QUEUES}/populate", {"queue_id": str(queue.pk), "session_ids": [foreign["project"]]}),
        (f"{QUEUES}/populate", {"queue_id": foreign["queue"], "session_ids": [foreign["project"]]}),
        (QUEUES, {"name": "a", "session_ids": [foreign["project"]]}),
        (QUEUES, {"name": "a", "default_dataset": foreign["dataset"]}),
        (reviewers, {"identity_ids": [foreign["user"]]}),
        (reviewers, {"identity_ids": [foreign["member"]]}),
        (f"{QUEUES}/status/{foreign['item']}", {"status": "viewed"}),
        (f"{ITEMS}/{foreign['queue']}/items", {"items": []}),
        (f"{QUEUES}/{foreign['queue']}/export", {}),
        (f"{QUEUES}/{foreign['queue']}/runs/delete", {"delete_all": True}),
    ]
    before = AnnotationQueue.unscoped.count(), QueueItem.unscoped.count()

    answers = [(path, body, api.post(path, body).status_code) for path, body in attempts]

    assert [answer for answer in answers if answer[2] != 404] == []
    assert (AnnotationQueue.unscoped.count(), QueueItem.unscoped.count()) == before
    assert not QueueReviewer.objects.for_workspace(queue.workspace_id).exists()
    assert not ItemReview.unscoped.exists()
    # Ids of others among those to remove have no effect.
    removal = api.post(f"{ITEMS}/{queue.pk}/items/delete", {"item_ids": [foreign["item"]]})
    assert removal.json() == {"message": "0 items removed from the annotation queue."}
    deleted = api.delete(f"{QUEUES}?queue_ids={queue.pk}&queue_ids={foreign['queue']}")
    assert deleted.status_code == 404
    assert (AnnotationQueue.unscoped.count(), QueueItem.unscoped.count()) == before


def test_pages_add_nothing_to_queues_of_another_workspace(page, workspace, run_ids, foreign):
    url = reverse("annotation-add", args=[workspace.pk])

    foreign_queue = page.post(url, {"run": str(run_ids[0]), "queue": foreign["queue"], "add": "1"})
    foreign_run = page.post(url, {"run": foreign["run"], "name": "a", "add": "1"})

    assert foreign_queue.status_code == 422  # shown in the form
    assert foreign_run.status_code in {404, 422}
    assert QueueItem.unscoped.count() == 1
    assert not AnnotationQueue.objects.for_workspace(workspace).exists()


def test_experiments_are_added_only_with_the_right_to_read_runs(make_api, workspace, queue):
    writer = make_api(workspace, Permission.ANNOTATION_QUEUES_WRITE)
    project_id = str(UUID(int=1))

    answers = [
        writer.post(QUEUES, {"name": "a", "session_ids": [project_id]}),
        writer.post(f"{QUEUES}/populate", {"queue_id": str(queue.pk), "session_ids": [project_id]}),
    ]

    assert [answer.status_code for answer in answers] == [403, 403]


def test_reservation_of_another_reviewer_cannot_be_taken(queue, items, make_reviewer):
    """Neither by the API nor by the buttons of the page, in any order."""
    owner, attacker = make_reviewer(), make_reviewer()
    set_status(item=items[0], reviewer_id=owner.pk, status=VIEWED)
    client = signed_in(attacker)
    headers = {"X-Tenant-Id": str(queue.workspace_id), "Accept": "application/json"}
    status = f"{QUEUES}/status/{items[0].pk}"
    item = [queue.workspace_id, queue.pk, items[0].pk]

    def post(value: str | None) -> int:
        body = json.dumps({"status": value})
        return client.post(
            status, body, content_type="application/json", headers=headers
        ).status_code

    statuses = [post(value) for value in ("viewed", "completed", None, "viewed", "completed")]
    pages = [
        client.post(reverse(f"annotation-{action}", args=item))
        for action in ("reserve", "skip", "complete")
    ]

    assert statuses == [409, 409, 200, 409, 409]
    assert [answer.status_code for answer in pages] == [204, 302, 302]
    rows = ItemReview.objects.for_workspace(queue.workspace_id)
    assert rows.get(reviewer_id=owner.pk).is_reserved(timezone.now())
    theirs = rows.get(reviewer_id=attacker.pk)
    assert (theirs.viewed_at, theirs.reserved_until, theirs.completed_at) == (None, None, None)


def test_large_rubrics_and_metadata_are_refused(api, queue):
    def rubric(count: int, texts: int) -> list[dict[str, Any]]:
        descriptions = {f"{number}": LONG for number in range(texts)}
        return [
            {"feedback_key": f"k{number}", "value_descriptions": descriptions}
            for number in range(count)
        ]

    bodies: list[dict[str, Any]] = [
        {"rubric_items": rubric(50, 100)},
        {"rubric_items": rubric(3, 100)},
        {"rubric_items": [{"feedback_key": f"k{number}"} for number in range(20_000)]},
        {"metadata": {"a": "x" * 70_000}},
    ]

    answers = [api.post(QUEUES, {"name": "a", **body}) for body in bodies]
    answers += [api.patch(f"{QUEUES}/{queue.pk}", body) for body in bodies]
    with CaptureQueriesContext(connection) as queries:
        api.patch(f"{QUEUES}/{queue.pk}", bodies[2])

    assert [answer.status_code for answer in answers] == [422] * 8
    assert answers[1].json()["detail"] == "`rubric_items` may have at most 1,048,576 bytes."
    assert max(len(query["sql"]) for query in queries) < 10_000  # the keys are counted first
    accepted = api.patch(f"{QUEUES}/{queue.pk}", {"rubric_items": rubric(2, 100)})
    assert accepted.status_code == 200, accepted.content


def test_lists_of_queues_load_no_rubric(api, page, workspace, items, queue):
    update_queue(queue=queue, changes={"rubric_instructions": LONG})

    with CaptureQueriesContext(connection) as queries:
        listed = api.get(QUEUES, include_rubric_keys="true")
        of_run = api.get(f"{QUEUES}/{items[0].run_id}/queues")
        shown = page.get(reverse("annotation-list", args=[workspace.pk]))

    assert [answer.status_code for answer in (listed, of_run, shown)] == [200, 200, 200]
    selected = [query["sql"].partition(" FROM ")[0] for query in queries]
    read = [sql for sql in selected if '"annotation_annotationqueue"."name"' in sql]
    assert len(read) == 3
    assert [sql for sql in read if '"rubric_instructions"' in sql] == []
    assert [sql for sql in read if '"rubric_items",' in sql.replace(KEYS_SQL, "")] == []


def test_export_holds_few_payloads_and_one_feedback_of_a_key(
    api, workspace, queue, monkeypatch, forget_known_partitions
):
    run_ids = [
        stored_run(workspace, inputs={"text": f"{number}" * PAYLOAD_BYTES}) for number in range(8)
    ]
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 100_000)
    queue.rubric_items = [{"feedback_key": "tone"}]
    queue.save()
    for item in fill_queue(queue, run_ids):
        set_status(item=item, reviewer_id=UUID(int=1), status=COMPLETED)
    for score in range(5):
        body = {"run_id": str(run_ids[0]), "key": "tone", "score": score}
        assert api.post("/feedback", body).status_code == 200
    response = api.post(f"{QUEUES}/{queue.pk}/export", {})

    tracemalloc.start()
    sizes, scores = [], []
    with CaptureQueriesContext(connection) as queries:
        for line in response:
            sizes.append(len(line))
            scores.append(line.rsplit(b",", 3)[1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert sum(sizes) > 8 * PAYLOAD_BYTES
    assert peak < 7 * PAYLOAD_BYTES
    assert sorted(scores) == [*[b""] * 7, b"4.0", b"tone.score"]
    read = [query["sql"] for query in queries if 'FROM "feedback_feedback"' in query["sql"]]
    assert all("DISTINCT ON" in sql for sql in read)


def test_sections_of_many_reserved_items_are_one_short_query(queue, items, make_reviewer):
    owner, other = make_reviewer(), make_reviewer()
    for item in items:
        set_status(item=item, reviewer_id=owner.pk, status=VIEWED)

    with CaptureQueriesContext(connection) as queries:
        mine = query_section(queue, other.pk, ReviewSection.MINE).count()
        theirs = query_section(queue, other.pk, ReviewSection.OTHERS).count()

    assert (mine, theirs) == (0, 3)
    assert [query["sql"] for query in queries if str(items[0].pk) in query["sql"]] == []


def test_many_reviewers_are_found_in_few_queries(api, workspace, queue):
    members = [WorkspaceMembershipFactory(workspace=workspace) for _ in range(5)]
    url = f"{ITEMS}/{queue.pk}/reviewers"
    ids = [str(member.user_id) for member in members] * 100

    with CaptureQueriesContext(connection) as queries:
        answer = api.post(url, {"identity_ids": ids})

    assert len(answer.json()) == 5
    assert len(queries) < 40


@transaction.atomic
def give_up_soon(change: Callable[[], Any]) -> None:
    connection.cursor().execute("SET LOCAL lock_timeout = '100ms'")
    change()


@pytest.mark.django_db(transaction=True)
def test_changes_of_several_items_wait_for_the_queue_first(queue, items, make_reviewer):
    """Otherwise two of them wait for each other's items, and one ends in an error."""
    user_id = make_reviewer().pk
    assign_reviewers(queue=queue, identity_ids=[user_id])
    changes = [
        lambda: remove_items(queue=queue),
        lambda: assign_reviewers(queue=queue, identity_ids=[user_id]),
        lambda: unassign_reviewer(queue=queue, identity_id=user_id),
        lambda: update_queue(queue=queue, changes={"num_reviewers_per_item": 3}),
        lambda: add_rows(queue=queue, rows=[]),
        lambda: delete_queues(queues=[queue]),
    ]
    is_locked, is_over = Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            lock_queue(queue)
            is_locked.set()
            is_over.wait(60)
        connection.close()

    holder = Thread(target=hold)
    holder.start()
    assert is_locked.wait(60)
    try:
        for change in changes:
            with pytest.raises(OperationalError, match="lock timeout"):
                give_up_soon(change)
    finally:
        is_over.set()
        holder.join(60)
