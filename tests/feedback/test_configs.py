"""Feedback configs: the type and range of the scores of a key."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.feedback.models import Feedback, FeedbackConfig

STARS = {"type": "continuous", "min": 0, "max": 5}
MOOD = {
    "type": "categorical",
    "categories": [{"value": 0, "label": "bad"}, {"value": 1, "label": "good"}],
}
URL = "/feedback-configs"


def feedback_body(**fields):
    return {"key": "k", "run_id": str(uuid4()), **fields}


def test_config_is_created_read_changed_and_deleted(api, workspace):
    created = api.post(URL, {"feedback_key": "stars", "feedback_config": STARS}).json()
    assert created.pop("modified_at")
    assert created == {
        "id": str(FeedbackConfig.objects.for_workspace(workspace).get().pk),
        "feedback_key": "stars",
        "feedback_config": {"type": "continuous", "min": 0.0, "max": 5.0, "categories": None},
        "tenant_id": str(workspace.pk),
        "is_lower_score_better": False,
        "is_enforced": False,
        "is_first": True,
        "is_deleted": False,
    }

    changed = api.patch(URL, {"feedback_key": "stars", "is_lower_score_better": True}).json()
    assert (changed["is_lower_score_better"], changed["feedback_config"]["max"]) == (True, 5.0)
    changed = api.patch(URL, {"id": created["id"], "feedback_config": MOOD}).json()
    assert changed["feedback_config"]["type"] == "categorical"

    assert api.delete(f"{URL}?feedback_key=stars").status_code == 204
    assert api.delete(f"{URL}?feedback_key=stars").status_code == 404
    assert api.get(URL).json() == []


def test_repeated_config_is_returned_and_a_different_one_is_rejected(api, workspace):
    body = {"feedback_key": "stars", "feedback_config": STARS}
    first = api.post(URL, body)

    repeated = api.post(URL, body)
    other = api.post(URL, body | {"feedback_config": MOOD})

    assert repeated.json()["id"] == first.json()["id"]
    assert (other.status_code, other.json()["code"]) == (400, "feedback_config_exists")
    assert "already exists" in other.json()["detail"]


def test_configs_are_listed_by_key_and_filtered(api, workspace):
    for key in ("b", "a", "ab,c"):
        api.post(URL, {"feedback_key": key, "feedback_config": STARS})

    def keys(**query):
        return [row["feedback_key"] for row in api.get(URL, **query).json()]

    assert keys() == ["a", "ab,c", "b"]
    assert keys(key=["b", "ab,c"]) == ["ab,c", "b"]
    assert keys(name_contains="A") == ["a", "ab,c"]
    assert keys(limit=1, offset=1) == ["ab,c"]
    assert keys(is_enforced="true") == []


def test_a_config_is_inferred_from_the_first_feedback_until_it_is_set(api, workspace):
    api.post("/feedback", feedback_body(key="s", score=0.5))
    api.post("/feedback", feedback_body(key="v", value="x"))
    api.post("/feedback", feedback_body(key="c", comment="hm"))

    types = {row["feedback_key"]: row["feedback_config"]["type"] for row in api.get(URL).json()}
    assert types == {"s": "continuous", "v": "categorical", "c": "freeform"}

    assert api.post("/feedback", feedback_body(key="s", feedback_config=STARS)).status_code == 200
    explicit = api.post(URL, {"feedback_key": "v", "feedback_config": MOOD})
    assert explicit.status_code == 200
    config = FeedbackConfig.objects.for_workspace(workspace).get(key="s")
    assert (config.config["max"], config.is_inferred) == (5.0, False)


def test_feedback_that_contradicts_the_config_of_its_key_is_rejected(api, workspace):
    api.post("/feedback", feedback_body(score=1, feedback_config=STARS))

    same = api.post("/feedback", feedback_body(score=2, feedback_config=STARS | {"max": 5.0}))
    other = api.post("/feedback", feedback_body(score=3, feedback_config=MOOD))

    assert same.status_code == 200
    assert (other.status_code, other.json()["code"]) == (400, "feedback_config_contradicted")
    assert Feedback.objects.for_workspace(workspace).count() == 2


def test_score_and_label_of_a_category_complete_each_other(api, workspace):
    api.post(URL, {"feedback_key": "k", "feedback_config": MOOD})

    by_label = api.post("/feedback", feedback_body(value="good")).json()
    by_value = api.post("/feedback", feedback_body(score=0)).json()
    neither = api.post("/feedback", feedback_body(score=0.5, value="odd")).json()

    assert (by_label["score"], by_label["value"]) == (1.0, "good")
    assert (by_value["score"], by_value["value"]) == (0.0, "bad")
    assert (neither["score"], neither["value"]) == (0.5, "odd")
    changed = api.patch(f"/feedback/{by_label['id']}", {"score": 0}).json()
    assert (changed["score"], changed["value"]) == (0.0, "bad")


def test_enforced_config_rejects_feedback_that_does_not_match(api, workspace):
    body = {"feedback_key": "k", "feedback_config": STARS, "is_enforced": True}
    assert api.post(URL, body).json()["is_enforced"] is True

    rejected = api.post("/feedback", feedback_body(score=6))

    assert (rejected.status_code, rejected.json()["code"]) == (400, "feedback_out_of_bounds")
    feedback = api.post("/feedback", feedback_body(score=5)).json()
    assert api.patch(f"/feedback/{feedback['id']}", {"score": -1}).status_code == 400
    assert [row.score for row in Feedback.objects.for_workspace(workspace)] == [5.0]
    assert api.post(URL, body).status_code == 409


def test_enforcing_a_config_requires_workspace_manage(make_api, workspace):
    body = {"feedback_key": "k", "feedback_config": STARS, "is_enforced": True}

    assert make_api(workspace, "write").post(URL, body).status_code == 403
    assert not FeedbackConfig.objects.for_workspace(workspace).exists()


def test_categories_are_added_and_removed(api):
    api.post(URL, {"feedback_key": "k", "feedback_config": MOOD})
    body = {"feedback_key": "k"}

    def labels(**change):
        response = api.patch(URL, body | change)
        assert response.status_code == 200, response.content
        return [row["label"] for row in response.json()["feedback_config"]["categories"]]

    assert labels(add_categories=[{"value": 2, "label": "best"}]) == ["bad", "good", "best"]
    assert labels(remove_categories=[0]) == ["good", "best"]
    for change in (
        {"remove_categories": [2]},
        {"remove_categories": [7]},
        {"add_categories": [{"value": 1, "label": "x"}]},
        {"add_categories": [{"value": 9, "label": "good"}]},
    ):
        assert api.patch(URL, body | change).status_code == 422


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        "continuous",
        {"type": "odd"},
        {"type": "continuous", "min": 2, "max": 1},
        {"type": "continuous", "min": "x"},
        {"type": "categorical", "categories": []},
        {"type": "categorical", "categories": [{"label": "x"}]},
        {"type": "categorical", "categories": [{"value": 1, "label": 2}]},
        {"type": "continuous", "allows_multiple_categories": True},
    ],
)
def test_invalid_config_is_rejected(api, workspace, config):
    assert api.post(URL, {"feedback_key": "k", "feedback_config": config}).status_code == 422
    assert not FeedbackConfig.objects.for_workspace(workspace).exists()


def test_a_change_without_a_key_is_rejected(api):
    assert api.patch(URL, {"is_lower_score_better": True}).status_code == 422
    assert api.delete(URL).status_code == 422
