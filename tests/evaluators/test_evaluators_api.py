"""Evaluators through the routes of the public clients."""

from __future__ import annotations

import pytest

from apps.evaluators.models import Evaluator
from tests.evaluators.conftest import create_rule
from tests.factories.evaluators import (
    SCHEMA,
    commit_judge,
    create_judge_prompt,
    structured,
)

pytestmark = pytest.mark.django_db
URL = "/api/v1/platform/evaluators"


@pytest.fixture
def body(workspace):
    create_judge_prompt(workspace)
    return {
        "name": "Correctness",
        "type": "llm",
        "llm_evaluator": {"prompt_repo_handle": "grader", "commit_hash_or_tag": "latest"},
    }


def create(api, body):
    response = api.post(URL, body)
    assert response.status_code == 201, response.content
    return response.json()["evaluator"]


def test_evaluator_of_a_commit_has_the_keys_of_its_schema(api, body):
    created = create(api, body | {"metadata": {"team": "search"}})

    read = api.get(f"{URL}/{created['id']}").json()
    assert read == created
    assert (read["name"], read["type"], read["feedback_keys"]) == (
        "Correctness",
        "llm",
        ["correctness"],
    )
    assert read["metadata"] == {"team": "search"}
    assert read["llm_evaluator"]["prompt_repo_handle"] == "grader"
    assert read["llm_evaluator"]["commit_hash_or_tag"] == "latest"
    assert (read["run_rules"], read["code_evaluator"]) == ([], None)


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"type": "code"}, 422, "`llm_evaluator`: the evaluator has the type `code`"),
        ({"type": "decision_model"}, 422, "`decision_model` are not supported"),
        (
            {"code_evaluator": {"code": "def perform_eval(run): ..."}},
            422,
            "`code_evaluator`: the evaluator has the type `llm`",
        ),
        ({"name": " "}, 422, "A name has"),
        ({"unknown": 1}, 422, "`unknown`"),
        ({"llm_evaluator": {"prompt_repo_handle": "nothing"}}, 404, "No such"),
        ({"llm_evaluator": {"prompt_repo_handle": "other/grader"}}, 422, "one of its workspace"),
        (
            {"llm_evaluator": {"prompt_repo_handle": "grader", "commit_hash_or_tag": "none"}},
            404,
            "No such commit",
        ),
        (
            {"llm_evaluator": {"prompt_repo_handle": "grader", "num_few_shot_examples": 3}},
            422,
            "`num_few_shot_examples` is not supported",
        ),
        (
            {
                "llm_evaluator": {
                    "prompt_repo_handle": "grader",
                    "variable_mapping": {"output": "outputs.answer.", "reference": "reference"},
                }
            },
            422,
            "`variable_mapping.output`",
        ),
        (
            {
                "llm_evaluator": {
                    "prompt_repo_handle": "grader",
                    "variable_mapping": {"question": "input.question"},
                }
            },
            422,
            "no variable `question`",
        ),
        ({"llm_evaluator": None}, 422, "`llm_evaluator` is missing"),
    ],
)
def test_evaluator_that_cannot_work_is_refused_with_the_reason(api, body, changes, status, text):
    response = api.post(URL, body | changes)

    assert response.status_code == status, response.content
    assert text in response.json()["detail"]
    assert not Evaluator.unscoped.exists()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"schema": None}, "no response schema"),
        ({"schema": SCHEMA | {"properties": {"comment": {"type": "string"}}}}, "1 to 20"),
        ({"schema": SCHEMA | {"properties": {"a": {"type": "object"}}}}, "`a` must be"),
        ({"text": "Grade {answer}"}, "no path for the variable `answer`"),
        ({"model": {"model": ""}}, "no model"),
        ({"tools": [{"name": "search"}]}, "no tools"),
    ],
)
def test_prompt_that_is_no_judge_is_refused(api, workspace, fields, text):
    create_judge_prompt(workspace, "other", **fields)
    llm = {"prompt_repo_handle": "other"}

    response = api.post(URL, {"name": "x", "type": "llm", "llm_evaluator": llm})

    assert response.status_code == 422, response.content
    assert text in response.json()["detail"]


def test_saved_settings_are_the_model_of_a_prompt_without_one(api, workspace, body):
    create_judge_prompt(workspace, "bare", model={"model": ""})
    manifest = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "chat_models", "openai", "ChatOpenAI"],
        "kwargs": {"model": "gpt-4.1"},
    }
    saved = api.post("/playground-settings", {"name": "large", "settings": manifest}).json()
    llm = {"prompt_repo_handle": "bare", "playground_settings_id": saved["id"]}

    created = create(api, body | {"llm_evaluator": llm})

    assert created["llm_evaluator"]["playground_settings_id"] == saved["id"]


def test_change_keeps_absent_fields(api, body):
    created = create(api, body)

    response = api.patch(
        f"{URL}/{created['id']}",
        {"name": "Right", "llm_evaluator": {"variable_mapping": {"output": "output.answer"}}},
    )

    changed = response.json()["evaluator"]
    assert response.status_code == 200
    assert (changed["name"], changed["llm_evaluator"]["prompt_repo_handle"]) == ("Right", "grader")
    assert changed["llm_evaluator"]["variable_mapping"] == {"output": "output.answer"}


def test_list_filters_and_counts(api, body, workspace, dataset):
    first = create(api, body)
    tone = SCHEMA | {"properties": {"tone": {"enum": ["kind", "rude"]}}, "required": ["tone"]}
    judge = [{"structured": structured(schema=tone)}]
    rule = create_rule(api, dataset_id=str(dataset.pk), display_name="Tone", evaluators=judge)

    def names(**query):
        listed = api.get(URL, **query).json()
        assert listed["total"] >= len(listed["evaluators"])
        return [item["name"] for item in listed["evaluators"]]

    assert names() == ["Tone", "Correctness"]
    assert names(sort_by="name", sort_by_desc="false", limit=1) == ["Correctness"]
    assert names(feedback_key="tone") == ["Tone"]
    assert names(name_contains="corr") == ["Correctness"]
    assert names(resource_id=str(dataset.pk)) == ["Tone"]
    assert names(type="code") == []
    assert api.get(URL, tag_value_id=first["id"]).status_code == 422
    [bound] = api.get(f"{URL}/{rule['evaluator_id']}").json()["run_rules"]
    assert (bound["id"], bound["dataset_name"]) == (rule["id"], "questions")


def test_evaluator_in_use_is_deleted_only_with_its_rules(api, body, dataset):
    created = create(api, body)
    create_rule(api, dataset_id=str(dataset.pk), evaluator_id=created["id"])

    refused = api.delete(f"{URL}/{created['id']}")
    bulk = api.delete(f"{URL}?evaluator_ids={created['id']}")

    assert (refused.status_code, refused.json()["code"]) == (409, "evaluator_in_use")
    assert bulk.json()["failed"][0]["id"] == created["id"]
    assert api.delete(f"{URL}/{created['id']}?delete_run_rules=true").status_code == 204
    assert api.get("/runs/rules").json() == []
    assert api.get(f"{URL}/{created['id']}").status_code == 404


def test_another_workspace_has_no_access(api, make_api, body, other_workspace):
    created = create(api, body)
    other = make_api(other_workspace)

    assert other.get(URL).json() == {"evaluators": [], "total": 0}
    for response in (
        other.get(f"{URL}/{created['id']}"),
        other.patch(f"{URL}/{created['id']}", {"name": "x"}),
        other.delete(f"{URL}/{created['id']}"),
    ):
        assert response.status_code == 404
    failed = other.delete(f"{URL}?evaluator_ids={created['id']}").json()
    assert failed["succeeded"] == []


def test_read_only_key_changes_nothing(api, make_api, workspace, body):
    created = create(api, body)
    reader = make_api(workspace, "read")

    assert reader.get(URL).status_code == 200
    assert reader.post(URL, body).status_code == 403
    assert reader.delete(f"{URL}/{created['id']}").status_code == 403


def test_new_commit_changes_the_judge(api, body, workspace):
    created = create(api, body)
    evaluator = Evaluator.unscoped.get(pk=created["id"])
    properties = SCHEMA["properties"] | {"tone": {"type": "integer"}}
    commit_judge(evaluator.prompt, schema=SCHEMA | {"properties": properties})

    changed = api.patch(f"{URL}/{created['id']}", {}).json()["evaluator"]

    assert changed["feedback_keys"] == ["correctness", "tone"]
