"""Annotation queues as the public clients create, read, change and delete them."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from apps.annotation.models import AnnotationQueue
from apps.annotation.services import queues as services
from apps.audit.models import Entry
from apps.feedback.models import FeedbackConfig
from tests.factories.annotation import make_queue
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceMembershipFactory

QUEUES = "/annotation-queues"


def test_created_queue_has_no_rubric_keys_and_read_queue_has_them(api, workspace):
    queue_id = str(uuid4())
    body = {
        "id": queue_id,
        "name": "support",
        "description": "d",
        "created_at": "2026-11-02T03:04:05Z",
    }

    created = api.post(QUEUES, body)
    read = api.get(f"{QUEUES}/{queue_id}")

    assert created.status_code == 200, created.content
    assert created.json() == {
        "id": queue_id,
        "tenant_id": str(workspace.pk),
        "name": "support",
        "description": "d",
        "queue_type": "single",
        "default_dataset": None,
        "created_at": "2026-11-02T03:04:05Z",
        "updated_at": "2026-11-02T03:04:05Z",
        "num_reviewers_per_item": 1,
        "enable_reservations": True,
        "reservation_minutes": 15,
        "reviewer_access_mode": "any",
        "assigned_reviewers": [],
        "run_rule_id": None,
        "source_rule_id": None,
        "metadata": None,
    }
    assert read.json() == created.json() | {"rubric_instructions": None, "rubric_items": []}


def test_rubric_of_one_queue_is_copied_to_another(api, workspace):
    config = FeedbackConfig(
        workspace=workspace,
        key="tone",
        config={"type": "continuous", "min": 0, "max": 1, "categories": None},
    )
    config.save()
    rubric = [
        {"feedback_key": "tone", "description": "How friendly?", "is_required": True},
        {
            "feedback_key": "reason",
            "regex_validator": "^[a-z ]+$",
            "visible_if": {"join": "all", "rules": [{"key": "tone", "op": "is", "values": [0]}]},
        },
    ]
    first = api.post(QUEUES, {"name": "a", "rubric_items": rubric, "rubric_instructions": "Read."})
    items = api.get(f"{QUEUES}/{first.json()['id']}").json()["rubric_items"]

    second = api.post(QUEUES, {"name": "b", "rubric_items": items})

    assert second.status_code == 200, second.content
    copied = api.get(f"{QUEUES}/{second.json()['id']}").json()["rubric_items"]
    assert copied == items
    assert items[0]["feedback_config_id"] == str(config.pk)
    assert items[0]["feedback_config"]["feedback_config"]["max"] == 1
    assert items[1] == {
        "feedback_key": "reason",
        "description": None,
        "value_descriptions": None,
        "score_descriptions": None,
        "is_required": False,
        "is_assertion": False,
        "regex_validator": "^[a-z ]+$",
        "required_if": None,
        "visible_if": {"join": "all", "rules": [{"key": "tone", "op": "is", "values": [0.0]}]},
        "feedback_config_id": None,
        "feedback_config": None,
    }


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        ({"feedback_key": ""}, "`rubric_items[1].feedback_key` must have 1 to 1000 characters."),
        ({"feedback_key": "tone"}, "`rubric_items[1].feedback_key` is that of another item."),
        (
            {"feedback_key": "b", "regex_validator": "("},
            "`rubric_items[1].regex_validator` cannot be used: missing ): (",
        ),
        (
            {"feedback_key": "b", "feedback_config_id": str(UUID(int=1))},
            "`rubric_items[1].feedback_config_id` is not the config of this key.",
        ),
        (
            {
                "feedback_key": "b",
                "visible_if": {"join": "all", "rules": [{"key": "c", "op": "is_empty"}]},
            },
            "`rubric_items[1].visible_if` must name keys of earlier items.",
        ),
        (
            {
                "feedback_key": "b",
                "required_if": {"join": "any", "rules": [{"key": "tone", "op": "is"}]},
            },
            "`rubric_items[1].required_if` needs 1 to 20 values for `is` and `is_one_of`.",
        ),
    ],
)
def test_invalid_rubric_is_refused_with_its_place(api, workspace, item, detail):
    body = {"name": "a", "rubric_items": [{"feedback_key": "tone"}, item]}

    response = api.post(QUEUES, body)

    assert (response.status_code, response.json()["code"]) == (422, "bad_rubric")
    assert response.json()["detail"] == detail
    assert not AnnotationQueue.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": " "},
        {"name": "a", "color": "red"},
        {"name": "a", "num_reviewers_per_item": 0},
        {"name": "a", "num_reviewers_per_item": 101},
        {"name": "a", "reservation_minutes": 1441},
        {"name": "a", "reviewer_access_mode": "nobody"},
        {"name": "a", "rubric_items": [{"feedback_key": "k", "weight": 1}]},
        {"name": "a", "rubric_items": [{"feedback_key": f"k{n}"} for n in range(51)]},
        {"name": "a", "metadata": {"a": {"b": float("1e400")}}},
    ],
)
def test_invalid_queue_is_refused(api, workspace, body):
    assert api.post(QUEUES, body).status_code == 422
    assert not AnnotationQueue.objects.for_workspace(workspace).exists()


def test_change_keeps_absent_fields_and_clears_null_ones(api, workspace):
    dataset = make_dataset(workspace)
    queue = api.post(
        QUEUES,
        {
            "name": "a",
            "description": "d",
            "rubric_instructions": "i",
            "metadata": {"a": 1},
            "rubric_items": [
                {"feedback_key": "tone"},
                {
                    "feedback_key": "why",
                    "visible_if": {"join": "all", "rules": [{"key": "tone", "op": "is_empty"}]},
                },
            ],
        },
    ).json()
    url = f"{QUEUES}/{queue['id']}"
    changes = {
        "name": "b",
        "description": None,
        "default_dataset": str(dataset.pk),
        "num_reviewers_per_item": None,
        "reviewer_access_mode": "assigned",
        "rubric_items": [{"feedback_key": "tone", "is_required": True}, {"feedback_key": "why"}],
    }

    changed = api.patch(url, changes)

    assert changed.status_code == 200, changed.content
    read = api.get(url).json()
    assert read == changed.json()
    assert [read[name] for name in ("name", "description", "default_dataset")] == [
        "b", None, str(dataset.pk),
    ]  # fmt: skip
    assert (read["num_reviewers_per_item"], read["reviewer_access_mode"]) == (None, "assigned")
    assert (read["rubric_instructions"], read["metadata"]) == ("i", {"a": 1})
    tone, why = read["rubric_items"]
    assert tone["is_required"] is True
    assert why["visible_if"]["rules"][0]["key"] == "tone"
    api.patch(
        url,
        {"rubric_items": [{"feedback_key": "tone"}, {"feedback_key": "why", "visible_if": None}]},
    )
    assert api.get(url).json()["rubric_items"][1]["visible_if"] is None


def test_dataset_of_another_workspace_is_refused(api, queue, other_workspace):
    dataset = make_dataset(other_workspace)

    created = api.post(QUEUES, {"name": "a", "default_dataset": str(dataset.pk)})
    changed = api.patch(f"{QUEUES}/{queue.pk}", {"default_dataset": str(dataset.pk)})

    assert (created.status_code, changed.status_code) == (404, 404)
    assert created.json()["code"] == "dataset_not_found"
    queue.refresh_from_db()
    assert queue.default_dataset_id is None


def test_id_of_another_queue_cannot_be_used_again(api, other_workspace):
    other = make_queue(other_workspace)

    response = api.post(QUEUES, {"name": "a", "id": str(other.pk)})

    assert (response.status_code, response.json()["code"]) == (409, "annotation_queue_id_taken")


def test_queues_are_filtered_and_sorted(api, workspace, make_api, other_workspace):
    first, second, _third = (make_queue(workspace, name) for name in ("alpha", "beta", "Alphabet"))
    make_queue(other_workspace, "alpha")

    def names(**query):
        response = api.get(QUEUES, **query)
        assert response.status_code == 200, response.content
        return [item["name"] for item in response.json()]

    assert names() == ["Alphabet", "beta", "alpha"]
    assert names(name="alpha") == ["alpha"]
    assert names(name_contains="alpha") == ["Alphabet", "alpha"]
    assert names(ids=[str(first.pk), str(second.pk)], limit=1, offset=1) == ["alpha"]
    assert names(sort_by="name", sort_by_desc="false") == ["Alphabet", "alpha", "beta"]
    assert names(queue_type="pairwise") == []
    assert names(assigned_to_me="true") == []
    assert api.get(QUEUES, limit=1).headers["X-Pagination-Total"] == "3"
    assert api.get(QUEUES, colour="red").status_code == 422


def test_list_has_a_constant_number_of_queries(
    api, workspace, items, django_assert_num_queries, django_assert_max_num_queries
):
    api.get(QUEUES)  # reads the key once
    with django_assert_max_num_queries(30) as first:
        assert [item["total_runs"] for item in api.get(QUEUES).json()] == [3]
    for number in range(3):
        make_queue(workspace, f"more {number}")

    with django_assert_num_queries(len(first)):
        queues = api.get(QUEUES, include_rubric_keys="true").json()

    assert [item["total_runs"] for item in queues] == [0, 0, 0, 3]
    assert queues[0]["rubric_keys"] == []


def test_deleting_queues_is_all_or_nothing(api, workspace, queue, items):
    other = make_queue(workspace, "other")

    refused = api.delete(f"{QUEUES}?queue_ids={queue.pk}&queue_ids={uuid4()}")
    assert refused.status_code == 404
    assert AnnotationQueue.objects.for_workspace(workspace).count() == 2

    deleted = api.delete(f"{QUEUES}?queue_ids={queue.pk}&queue_ids={other.pk}")

    assert deleted.status_code == 200
    assert not AnnotationQueue.objects.for_workspace(workspace).exists()
    assert api.get(f"{QUEUES}/{queue.pk}").status_code == 404


def test_changes_are_audited(api, workspace):
    queue_id = api.post(QUEUES, {"name": "a", "rubric_items": [{"feedback_key": "k"}]}).json()["id"]
    api.patch(f"{QUEUES}/{queue_id}", {"num_reviewers_per_item": 2})
    api.delete(f"{QUEUES}/{queue_id}")

    entries = list(Entry.objects.filter(target_id=queue_id).order_by("at", "pk"))
    assert [entry.action for entry in entries] == [
        "annotation_queue.created", "annotation_queue.updated", "annotation_queue.deleted",
    ]  # fmt: skip
    assert entries[0].after["feedback_keys"] == ["k"]
    assert (entries[1].before, entries[1].after) == (
        {"num_reviewers_per_item": 1},
        {"num_reviewers_per_item": 2},
    )


def test_workspace_has_a_maximum_of_queues(api, queue, monkeypatch):
    monkeypatch.setattr(services, "MAX_QUEUES", 1)

    response = api.post(QUEUES, {"name": "one too many"})

    assert (response.status_code, response.json()["code"]) == (409, "too_many")
    assert AnnotationQueue.objects.for_workspace(queue.workspace_id).count() == 1


@pytest.mark.parametrize("scope", ["read", "ingest", "deploy"])
def test_key_without_the_permission_changes_nothing(make_api, workspace, queue, items, scope):
    api = make_api(workspace, scope)
    item = items[0]

    statuses = [
        api.post(QUEUES, {"name": "b"}).status_code,
        api.patch(f"{QUEUES}/{queue.pk}", {"name": "b"}).status_code,
        api.delete(f"{QUEUES}/{queue.pk}").status_code,
        api.post(f"{QUEUES}/{queue.pk}/runs", []).status_code,
        api.post(f"{QUEUES}/status/{item.pk}", {"status": "completed"}).status_code,
        api.post(f"/v1/platform{QUEUES}/{queue.pk}/items/delete", {"item_ids": []}).status_code,
    ]

    assert statuses == [403] * 6
    queue.refresh_from_db()
    item.refresh_from_db()
    assert (queue.name, item.completed_at) == ("queue", None)


def test_reviewers_are_assigned_by_user_and_by_member(api, workspace, queue, other_workspace):
    first = WorkspaceMembershipFactory(workspace=workspace)
    second = WorkspaceMembershipFactory(workspace=workspace)
    stranger = WorkspaceMembershipFactory(workspace=other_workspace)
    url = f"/v1/platform{QUEUES}/{queue.pk}/reviewers"

    assigned = api.post(url, {"identity_ids": [str(first.pk), str(second.user_id)]})
    refused = api.post(url, {"identity_ids": [str(stranger.pk)]})
    repeated = api.post(url, {"identity_ids": [str(first.user_id)]})

    assert [item["id"] for item in assigned.json()] == [str(first.user_id), str(second.user_id)]
    assert assigned.json()[0]["email"] == first.user.email
    assert (refused.status_code, refused.json()["code"]) == (404, "reviewer_not_found")
    assert repeated.json() == assigned.json() == api.get(url).json()
    assert api.delete(f"{url}/{first.pk}").status_code == 204
    assert api.delete(f"{url}/{first.pk}").status_code == 404
    assert [item["id"] for item in api.get(url).json()] == [str(second.user_id)]
