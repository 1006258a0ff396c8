"""Datasets: create, list, read, change and delete."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest

from apps.audit.models import Entry
from apps.datasets.models import Dataset, DatasetVersion
from apps.organizations.services import tags
from tests.factories.datasets import make_dataset
from tests.factories.tracing import ProjectFactory

URL = "/datasets"


def names(response):
    assert response.status_code == 200, response.content
    return [row["name"] for row in response.json()]


def test_callers_without_access_are_refused(api, make_api, workspace, other_workspace):
    dataset = make_dataset(workspace)
    path = f"{URL}/{dataset.pk}"
    outsider = make_api(other_workspace)
    reader = make_api(workspace, "read")

    assert outsider.get(path).status_code == 404
    assert outsider.patch(path, {"name": "x"}).status_code == 404
    assert outsider.delete(path).status_code == 404
    assert outsider.get(URL).json() == []
    assert reader.get(path).status_code == 200
    assert reader.post(URL, {"name": "x"}).status_code == 403
    assert reader.patch(path, {"name": "x"}).status_code == 403
    assert reader.delete(path).status_code == 403
    assert make_api(workspace, "ingest").get(URL).status_code == 403
    assert Dataset.objects.for_workspace(workspace).get().name == "dataset"


def test_created_dataset_is_returned_with_all_fields(api, workspace):
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    body = {
        "name": "questions",
        "description": "of users",
        "data_type": "chat",
        "inputs_schema_definition": schema,
        "transformations": None,
        "extra": {"metadata": {"team": "a"}, "source": "sdk"},
    }

    response = api.post(URL, body)

    created = response.json()
    row = Dataset.objects.for_workspace(workspace).get()
    assert created.pop("created_at") == row.created_at.isoformat().replace("+00:00", "Z")
    assert created.pop("modified_at")
    assert created == {
        "id": str(row.pk),
        "tenant_id": str(workspace.pk),
        "name": "questions",
        "description": "of users",
        "data_type": "chat",
        "example_count": 0,
        "session_count": 0,
        "last_session_start_time": None,
        "inputs_schema_definition": schema,
        "outputs_schema_definition": None,
        "transformations": None,
        "externally_managed": False,
        "metadata": {"team": "a"},
        "baseline_experiment_id": None,
    }
    version = DatasetVersion.objects.for_workspace(workspace).get()
    assert version.as_of == row.latest_version_at
    entry = Entry.objects.get(action="dataset.created")
    assert (entry.target_id, entry.target_name) == (str(row.pk), "questions")


def test_a_taken_name_or_id_is_a_conflict(api, workspace, other_workspace):
    first = api.post(URL, {"name": "n"}).json()
    foreign = make_dataset(other_workspace, name="n")

    same_name = api.post(URL, {"name": "n"})
    same_id = api.post(URL, {"name": "m", "id": first["id"]})
    foreign_id = api.post(URL, {"name": "m", "id": str(foreign.pk)})

    assert (same_name.status_code, same_name.json()["code"]) == (409, "dataset_name_taken")
    assert same_name.json()["detail"] == "Dataset with name n already exists."
    assert (same_id.status_code, same_id.json()["code"]) == (409, "dataset_id_taken")
    assert (foreign_id.status_code, foreign_id.json()["code"]) == (409, "dataset_id_taken")
    assert Dataset.objects.for_workspace(workspace).count() == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "name"),
        ({"name": " "}, "name"),
        ({"name": "n", "colour": "red"}, "colour"),
        ({"name": "n", "data_type": "xml"}, "data_type"),
        ({"name": "n", "inputs_schema_definition": {"type": "thing"}}, "inputs_schema_definition"),
        ({"name": "n", "outputs_schema_definition": {"$ref": "https://x.example/a"}}, "x.example"),
        ({"name": "n", "inputs_schema_definition": {"pattern": "(?<=a)b"}}, "inputs_schema"),
        ({"name": "n", "transformations": [{"path": ["inputs"], "transformation_type": "t"}]}, "t"),
        (
            {
                "name": "n",
                "transformations": [
                    {"path": ["x"], "transformation_type": "remove_system_messages"}
                ],
            },
            "path",
        ),
        ([], "object"),
    ],
)
def test_an_invalid_dataset_is_refused_with_the_field(api, workspace, body, text):
    response = api.post(URL, body)

    assert response.status_code == 422
    assert text in response.json()["detail"]
    assert not Dataset.objects.for_workspace(workspace).exists()


def test_schemas_may_refer_to_the_prebuilt_schemas(api, settings):
    message = {"$ref": f"{settings.BASE_URL}/public/schemas/v1/message.json"}
    schema = {"type": "object", "properties": {"messages": {"type": "array", "items": message}}}

    response = api.post(URL, {"name": "n", "inputs_schema_definition": schema})

    assert response.status_code == 200
    body = {
        "dataset_id": response.json()["id"],
        "inputs": {"messages": [{"role": "user", "content": "hi"}]},
    }
    assert api.post("/examples", body).status_code == 200
    refused = api.post("/examples", body | {"inputs": {"messages": [{"content": "hi"}]}})
    assert (refused.status_code, refused.json()["code"]) == (422, "example_refused")


def test_datasets_are_filtered_sorted_and_paged(api, workspace):
    first = make_dataset(workspace, {"a": 1}, name="Alpha", extra={"metadata": {"k": "v", "n": 1}})
    make_dataset(workspace, name="Beta", data_type="llm")
    third = make_dataset(workspace, {"a": 1}, {"a": 2}, name="gamma, delta", data_type="chat")
    experiment = ProjectFactory(workspace=workspace, reference_dataset_id=third.pk)

    assert names(api.get(URL)) == ["gamma, delta", "Beta", "Alpha"]
    assert api.get(URL, limit=1)["X-Pagination-Total"] == "3"
    assert names(api.get(URL, limit=1, offset=1)) == ["Beta"]
    assert names(api.get(URL, name="gamma, delta", limit=1)) == ["gamma, delta"]
    assert names(api.get(URL, name="gamma")) == []
    assert names(api.get(URL, name_contains="ALPH")) == ["Alpha"]
    assert names(api.get(URL, id=[str(first.pk), str(third.pk)])) == ["gamma, delta", "Alpha"]
    assert names(api.get(URL, data_type=["llm", "chat"])) == ["gamma, delta", "Beta"]
    assert names(api.get(URL, metadata='{"k": "v"}')) == ["Alpha"]
    assert names(api.get(URL, metadata='{"k": "w"}')) == []
    assert names(api.get(URL, sort_by="example_count")) == ["gamma, delta", "Alpha", "Beta"]
    assert names(api.get(URL, sort_by="name", sort_by_desc="False")) == [
        "Alpha", "Beta", "gamma, delta",
    ]  # fmt: skip
    assert names(api.get(URL, sort_by="session_count", limit=1)) == ["gamma, delta"]
    assert names(api.get(URL, sort_by="last_session_start_time", limit=1)) == ["gamma, delta"]
    (row,) = api.get(URL, name="gamma, delta", exclude="example_count").json()
    assert (row["example_count"], row["session_count"]) == (None, 1)
    assert datetime.fromisoformat(row["last_session_start_time"]) == experiment.start_time
    for query in ({"limit": 101}, {"sort_by": "size"}, {"metadata": "[]"}, {"colour": "red"}):
        assert api.get(URL, **query).status_code == 422


def test_datasets_are_filtered_by_tags(api, workspace):
    make_dataset(workspace, name="plain")
    key = tags.create_key(workspace_id=workspace.pk, key="env")
    value = tags.create_value(key=key, value="test")

    created = api.post(URL, {"name": "tagged", "tag_value_ids": [str(value.pk)]})

    assert created.status_code == 200
    assert names(api.get(URL, tag_value_id=str(value.pk))) == ["tagged"]
    unknown = api.post(URL, {"name": "other", "tag_value_ids": [str(uuid4())]})
    assert unknown.status_code == 404
    assert names(api.get(URL, name="other")) == []


@pytest.mark.parametrize(
    "sort_by",
    [
        "name",
        "created_at",
        "modified_at",
        "example_count",
        "session_count",
        "last_session_start_time",
    ],
)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_v2_list_walks_all_datasets_by_cursor(api, workspace, sort_by, order):
    created = [
        make_dataset(workspace, *({"a": 1},) * (n % 3), name=f"d{n % 4}{n}") for n in range(7)
    ]
    for dataset in created[:3]:
        ProjectFactory(workspace=workspace, reference_dataset_id=dataset.pk)

    listed_ids, cursor = [], None
    while True:
        query = {"page_size": 3, "sort_by": sort_by, "sort_order": order}
        page = api.get("/v2/datasets", **query, **({"cursor": cursor} if cursor else {})).json()
        listed_ids += [row["id"] for row in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    v1 = api.get(URL, sort_by=sort_by, sort_by_desc=order == "desc").json()
    assert len(listed_ids) == 7
    assert listed_ids == [row["id"] for row in v1]


@pytest.mark.parametrize("cursor", ["x", "bnVsbA==", "WzEsMl0="])
def test_a_malformed_cursor_is_refused(api, cursor):
    response = api.get("/v2/datasets", cursor=cursor)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


def test_changes_of_a_dataset_keep_all_other_fields(api, workspace):
    created = api.post(
        URL, {"name": "n", "description": "d", "extra": {"metadata": {"a": 1}, "source": "sdk"}}
    ).json()
    unchanged = {"__missing__": "__missing__"}

    response = api.patch(
        f"{URL}/{created['id']}",
        {"name": "m", "description": unchanged, "inputs_schema_definition": {"type": "object"}},
    )

    changed = response.json()
    assert response.status_code == 200
    assert (changed["name"], changed["description"], changed["metadata"]) == ("m", "d", {"a": 1})
    assert changed["inputs_schema_definition"] == {"type": "object"}
    cleared = api.patch(
        f"{URL}/{created['id']}",
        {"inputs_schema_definition": None, "metadata": {"b": 2}, "description": ""},
    ).json()
    assert (cleared["inputs_schema_definition"], cleared["metadata"]) == (None, {"b": 2})
    assert cleared["description"] == ""
    assert Dataset.objects.for_workspace(workspace).get().extra == {
        "metadata": {"b": 2},
        "source": "sdk",
    }


def test_the_baseline_is_an_experiment_on_the_dataset(api, workspace, other_workspace, dataset):
    experiment = ProjectFactory(workspace=workspace, reference_dataset_id=dataset.pk)
    other = ProjectFactory(workspace=workspace, reference_dataset_id=uuid4())
    path = f"{URL}/{dataset.pk}"

    refused = api.patch(path, {"baseline_experiment_id": str(other.pk)})
    accepted = api.patch(path, {"baseline_experiment_id": str(experiment.pk)})

    assert (refused.status_code, refused.json()["code"]) == (404, "experiment_not_found")
    assert accepted.json()["baseline_experiment_id"] == str(experiment.pk)


def test_examples_are_changed_with_their_dataset_or_not_at_all(api, workspace):
    dataset = make_dataset(workspace, {"a": 1})
    (example,) = api.get("/examples", dataset=str(dataset.pk)).json()
    schema = {"type": "object", "required": ["b"]}
    path = f"{URL}/{dataset.pk}"

    refused = api.patch(
        path,
        {
            "inputs_schema_definition": schema,
            "patch_examples": {example["id"]: {"inputs": {"c": 1}}},
        },
    )
    assert refused.status_code == 422
    assert api.get(path).json()["inputs_schema_definition"] is None

    accepted = api.patch(
        path,
        {
            "inputs_schema_definition": schema,
            "patch_examples": {example["id"]: {"inputs": {"b": 1}}},
        },
    )
    assert accepted.status_code == 200
    assert api.get(f"/examples/{example['id']}").json()["inputs"] == {"b": 1}


def test_a_deleted_dataset_is_hidden_and_frees_its_name(api, workspace):
    dataset = make_dataset(workspace, {"a": 1}, name="n")
    (example,) = api.get("/examples", dataset=str(dataset.pk)).json()

    assert api.delete(f"{URL}/{dataset.pk}").status_code == 200

    assert api.get(f"{URL}/{dataset.pk}").status_code == 404
    assert api.delete(f"{URL}/{dataset.pk}").status_code == 404
    assert names(api.get(URL)) == []
    assert api.get(f"/examples/{example['id']}").status_code == 404
    assert api.get("/examples", id=example["id"]).json() == []
    assert api.get("/examples", dataset=str(dataset.pk)).status_code == 404
    assert api.post(URL, {"name": "n"}).status_code == 200
    assert Entry.objects.get(action="dataset.deleted").before == {"name": "n", "example_count": 1}


def test_datasets_are_deleted_together_or_not_at_all(api, workspace):
    one, two = make_dataset(workspace, name="1"), make_dataset(workspace, name="2")

    refused = api.delete(f"{URL}?dataset_ids={one.pk}&dataset_ids={uuid4()}")
    assert refused.status_code == 404
    assert len(names(api.get(URL))) == 2

    assert api.delete(f"{URL}?dataset_ids={one.pk}&dataset_ids={two.pk}").status_code == 200
    assert names(api.get(URL)) == []


def test_an_experiment_needs_an_existing_dataset(api, workspace, other_workspace, dataset):
    foreign = make_dataset(other_workspace)

    accepted = api.post("/sessions", {"name": "e1", "reference_dataset_id": str(dataset.pk)})
    refused = [
        api.post("/sessions", {"name": "e2", "reference_dataset_id": str(item)})
        for item in (foreign.pk, uuid4())
    ]

    assert accepted.json()["reference_dataset_id"] == str(dataset.pk)
    assert [(r.status_code, r.json()["code"]) for r in refused] == [(404, "dataset_not_found")] * 2
    assert api.get(f"{URL}/{dataset.pk}").json()["session_count"] == 1


@pytest.mark.parametrize("count", [2, 12])
def test_the_list_takes_a_fixed_number_of_queries(api, workspace, django_assert_num_queries, count):
    for n in range(count):
        make_dataset(workspace, name=f"d{n}")
    api.get(URL)

    with django_assert_num_queries(3):  # the page, its experiments, the total
        assert len(api.get(URL).json()) == count
