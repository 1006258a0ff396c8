"""Examples with JSON bodies: create, list, read, change and delete."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

import pytest

from apps.datasets.models import ExampleRevision
from tests.factories.datasets import make_dataset
from tests.factories.tracing import read_run, stored_run

URL = "/examples"


@pytest.fixture
def add(api, dataset):
    """Create one example and return it."""

    def add(inputs, **fields):
        response = api.post(URL, {"dataset_id": str(dataset.pk), "inputs": inputs, **fields})
        assert response.status_code == 200, response.content
        return response.json()

    return add


@pytest.fixture
def listed(api, dataset):
    """Return the inputs of the listed examples."""

    def listed(**query):
        response = api.get(URL, dataset=str(dataset.pk), **query)
        assert response.status_code == 200, response.content
        return [example["inputs"] for example in response.json()]

    return listed


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, dataset, add):
    example = add({"a": 1})
    path = f"{URL}/{example['id']}"
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    body = {"dataset_id": str(dataset.pk), "inputs": {}}

    assert outsider.get(path).status_code == 404
    assert outsider.get(URL, dataset=str(dataset.pk)).status_code == 404
    assert outsider.get(URL, id=example["id"]).json() == []
    assert outsider.post(URL, body).status_code == 404
    assert outsider.patch(path, {"inputs": {}}).status_code == 404
    assert outsider.patch(f"{URL}/bulk", [{"id": example["id"]}]).status_code == 404
    assert outsider.delete(path).status_code == 404
    assert outsider.delete(f"{URL}?example_ids={example['id']}").status_code == 404
    assert reader.get(path).status_code == 200
    assert reader.post(URL, body).status_code == 403
    assert reader.post(f"{URL}/bulk", [body]).status_code == 403
    assert reader.patch(path, {"inputs": {}}).status_code == 403
    assert reader.delete(path).status_code == 403
    assert ExampleRevision.objects.for_workspace(workspace).count() == 1


def test_created_example_is_returned_with_all_fields(api, workspace, dataset, add):
    example_id = str(uuid4())

    created = add(
        {"b": 1, "a": [1e16, 12345678901234567890123, "\u0000"]},
        id=example_id,
        outputs={"z": None},
        metadata={"k": "v"},
        split="test",
        created_at="2026-01-02T03:04:05.678901Z",
    )

    modified_at = created.pop("modified_at")
    assert created == {
        "id": example_id,
        "dataset_id": str(dataset.pk),
        "name": f"#{example_id[-4:]} @ dataset",
        "created_at": "2026-01-02T03:04:05.678901Z",
        "inputs": {"b": 1, "a": [1e16, 12345678901234567890123, "\u0000"]},
        "outputs": {"z": None},
        "metadata": {"k": "v", "dataset_split": ["test"]},
        "source_run_id": None,
        "source_session_id": None,
        "source_trace_id": None,
        "source_run_start_time": None,
        "attachment_urls": None,
    }
    dataset.refresh_from_db()
    assert modified_at == dataset.latest_version_at.isoformat().replace("+00:00", "Z")
    assert dataset.example_count == 1
    assert list(created["inputs"]) == ["b", "a"]
    assert api.get(f"{URL}/{example_id}").json() == created | {"modified_at": modified_at}


def test_an_example_is_in_the_base_split_unless_it_names_others(add):
    assert add({})["metadata"] == {"dataset_split": ["base"]}
    assert add({}, split=["a", "b", "a"])["metadata"] == {"dataset_split": ["a", "b"]}
    assert add({}, metadata={"dataset_split": "x"})["metadata"] == {"dataset_split": ["x"]}
    assert add({}, metadata={"dataset_split": "x"}, split="y")["metadata"] == {
        "dataset_split": ["y"]
    }


def test_bulk_creation_makes_one_version_and_keeps_the_order(api, workspace, dataset, listed):
    bodies = [{"dataset_id": str(dataset.pk), "inputs": {"n": n}} for n in range(5)]

    created = api.post(f"{URL}/bulk", bodies).json()

    assert [example["inputs"]["n"] for example in created] == [0, 1, 2, 3, 4]
    assert len({example["modified_at"] for example in created}) == 1
    assert listed() == [{"n": n} for n in range(5)]
    assert dataset.versions.count() == 2
    assert api.post(f"{URL}/bulk", []).json() == []
    assert dataset.versions.count() == 2


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"inputs": None}, "inputs"),
        ({"inputs": [1]}, "inputs"),
        ({"outputs": "text"}, "outputs"),
        ({"metadata": []}, "metadata"),
        ({"split": [1]}, "split"),
        ({"split": ""}, "split"),
        ({"id": "x"}, "id"),
        ({"colour": "red"}, "colour"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"dataset_id": None}, "dataset_id"),
        ({"use_source_run_io": True}, "source_run_id"),
        ({"use_source_run_attachments": ["a"]}, "source_run_id"),
        ({"use_legacy_message_format": True}, "use_legacy_message_format"),
    ],
)
def test_an_invalid_example_is_refused_and_nothing_is_stored(api, workspace, dataset, fields, text):
    body = {"dataset_id": str(dataset.pk), "inputs": {"a": 1}}

    response = api.post(f"{URL}/bulk", [body, body | fields])
    checked = api.post(f"{URL}/validate/bulk", [body, body | fields])

    assert response.status_code == 422
    assert text in response.json()["detail"]
    assert (checked.status_code, checked.json()["detail"]) == (422, response.json()["detail"])
    assert not ExampleRevision.objects.for_workspace(workspace).exists()
    assert dataset.versions.count() == 1


def test_a_checked_example_is_what_its_creation_would_store(api, workspace):
    transformations = [{"path": ["inputs"], "transformation_type": "remove_extra_fields"}]
    dataset = make_dataset(
        workspace,
        inputs_schema={"type": "object", "properties": {"a": {"type": "number"}}},
        transformations=transformations,
    )
    body = {
        "dataset_id": str(dataset.pk),
        "inputs": {"a": 1.0, "b": 2},
        "outputs": {"big": 12345678901234567890},
        "metadata": {"topic": "x"},
        "split": "test",
        "created_at": "2026-11-01T00:00:00Z",
    }

    checked = api.post(f"{URL}/validate", body)

    assert checked.status_code == 200
    assert checked.json() == {
        "id": None,
        "dataset_id": str(dataset.pk),
        "created_at": "2026-11-01T00:00:00Z",
        "inputs": {"a": 1.0},
        "outputs": {"big": 12345678901234567890},
        "metadata": {"topic": "x", "dataset_split": ["test"]},
        "split": ["test"],
        "source_run_id": None,
        "use_source_run_io": False,
        "overwrite": False,
    }
    assert not ExampleRevision.objects.for_workspace(workspace).exists()
    assert dataset.versions.count() == 1
    bulk = api.post(f"{URL}/validate/bulk", [body, body | {"inputs": {"a": 2}}]).json()
    assert [item["inputs"] for item in bulk] == [{"a": 1}, {"a": 2}]
    assert api.post(f"{URL}/validate/bulk", []).json() == []
    stored = api.post(URL, body).json()
    assert {name: stored[name] for name in ("inputs", "outputs", "metadata", "created_at")} == {
        name: checked.json()[name] for name in ("inputs", "outputs", "metadata", "created_at")
    }


def test_a_check_finds_what_creation_would_refuse(make_api, workspace, other_workspace, add, api):
    example = add({"a": 1})
    body = {"dataset_id": example["dataset_id"], "inputs": {}}
    url = f"{URL}/validate"

    assert api.post(url, body | {"id": example["id"]}).status_code == 409
    assert api.post(url, body | {"dataset_id": str(uuid4())}).status_code == 404
    run = {"source_run_id": str(stored_run(workspace)), "use_source_run_attachments": ["chart"]}
    missing = api.post(url, body | run)
    assert missing.status_code == 422
    assert "`chart`" in missing.json()["detail"]
    assert make_api(other_workspace).post(url, body).status_code == 404
    assert make_api(workspace, "read").post(url, body).status_code == 403
    assert ExampleRevision.objects.for_workspace(workspace).count() == 1


def test_content_that_violates_the_schema_is_refused_with_row_and_field(api, workspace):
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}}},
        "required": ["items"],
        "additionalProperties": False,
    }
    dataset = make_dataset(workspace, inputs_schema=schema, outputs_schema={"maxProperties": 1})
    body = {"dataset_id": str(dataset.pk), "inputs": {"items": ["a"]}, "outputs": {"x": 1}}

    response = api.post(
        f"{URL}/bulk",
        [
            body,
            body | {"inputs": {"items": ["a", 7, "b"]}},
            body | {"inputs": {"items": [], "other": 1}, "outputs": {"x": 1, "y": 2}},
        ],
    )

    error = response.json()
    assert (response.status_code, error["code"]) == (422, "example_refused")
    assert error["detail"].startswith("Row 1, inputs.items[1]: 7 is not of type 'string'")
    assert [(e["row"], e["field"]) for e in error["errors"]] == [
        (1, "inputs.items[1]"),
        (1, "inputs.items[2]"),
        (2, "inputs"),
        (2, "outputs"),
    ]
    assert not ExampleRevision.objects.for_workspace(workspace).exists()
    accepted = api.post(URL, body | {"outputs": None}).json()
    assert accepted["outputs"] is None
    changed = api.patch(f"{URL}/{accepted['id']}", {"inputs": {"items": ["b"]}})
    assert changed.status_code == 422
    assert api.get(f"{URL}/{accepted['id']}").json()["inputs"] == {"items": ["a"]}


def test_a_schema_that_refers_to_itself_without_end_is_refused(api, workspace):
    dataset = make_dataset(workspace, inputs_schema={"$ref": "#"})

    response = api.post(URL, {"dataset_id": str(dataset.pk), "inputs": {}})

    assert (response.status_code, response.json()["code"]) == (422, "example_refused")


def test_an_id_in_use_is_a_conflict(api, workspace, dataset, add):
    example = add({"a": 1})
    other = make_dataset(workspace, name="other")
    body = {"dataset_id": str(dataset.pk), "inputs": {}, "id": example["id"]}

    same = api.post(URL, body)
    elsewhere = api.post(URL, body | {"dataset_id": str(other.pk)})
    twice = api.post(f"{URL}/bulk", [body | {"id": str(UUID(int=5))}] * 2)

    assert [r.status_code for r in (same, elsewhere, twice)] == [409, 409, 422]
    assert same.json()["code"] == "example_id_taken"
    assert api.delete(f"{URL}/{example['id']}").status_code == 200
    assert api.post(URL, body | {"dataset_id": str(other.pk)}).status_code == 409
    assert api.post(URL, body).status_code == 200  # a deleted example of the dataset returns


def test_the_same_id_can_exist_in_two_workspaces(make_api, add, other_workspace):
    example = add({"a": 1})
    other = make_dataset(other_workspace)

    response = make_api(other_workspace).post(
        URL, {"dataset_id": str(other.pk), "inputs": {}, "id": example["id"]}
    )

    assert response.status_code == 200


def test_examples_are_listed_newest_first_with_filters(api, workspace, dataset, add, listed):
    first = add({"n": 1, "text": "Grüße an 100%"}, metadata={"a": {"b": 1}}, split="train")
    second = add({"n": 2}, outputs={"answer": 'say "no"\n'}, split=["test", "with, comma"])
    add({"n": 3}, metadata={"tenant_id": "x"})

    def numbers(**query):
        return [inputs["n"] for inputs in listed(**query)]

    assert numbers() == [3, 2, 1]
    assert numbers(limit=1, offset=1) == [2]
    assert numbers(id=[first["id"], second["id"]]) == [2, 1]
    assert numbers(splits=["train"]) == [1]
    assert numbers(splits=["train", "with, comma"]) == [2, 1]
    assert numbers(metadata='{"a": {"b": 1}}') == [1]
    assert numbers(filter='exists(metadata, "tenant_id")') == [3]
    assert numbers(
        filter='and(not(has(metadata, \'{"tenant_id": "x"}\')), not(exists(metadata, "a")))'
    ) == [2]
    assert numbers(full_text_contains="GRÜSSE AN 100%") == []
    assert numbers(full_text_contains="GRÜße AN 100%") == [1]
    assert numbers(full_text_contains='"no"\n') == [2]
    assert numbers(full_text_contains=["n", "no"]) == [2]
    assert numbers(full_text_contains="100_") == []
    assert numbers(order="recently_created") == [3, 2, 1]
    assert numbers(order="recently_created", descending="false") == [1, 2, 3]
    assert numbers(descending="false") == [1, 2, 3]
    assert numbers(order="id") == sorted_numbers(api, dataset)
    random = numbers(order="random", random_seed=1)
    assert sorted(random) == [1, 2, 3]
    pages = [numbers(order="random", random_seed=1, limit=1, offset=n)[0] for n in range(3)]
    assert pages == random
    assert numbers(inline_s3_urls="True") == [3, 2, 1]
    for query in (
        {"limit": 101}, {"order": "size"}, {"select": "colour"}, {"metadata": "1"}, {"colour": "x"},
    ):  # fmt: skip
        assert api.get(URL, dataset=str(dataset.pk), **query).status_code == 422
    assert api.get(URL, dataset=str(dataset.pk), filter="eq(").status_code == 400
    assert api.get(URL).status_code == 422
    by_id = api.get(URL, id=f"{first['id']},{second['id']}").json()
    assert [example["inputs"]["n"] for example in by_id] == [2, 1]


def sorted_numbers(api, dataset):
    examples = api.get(URL, dataset=str(dataset.pk)).json()
    return [e["inputs"]["n"] for e in sorted(examples, key=lambda e: e["id"])]


def test_select_limits_the_fields(api, dataset, add):
    add({"n": 1})

    def fields(**query):
        (example,) = api.get(URL, dataset=str(dataset.pk), **query).json()
        return set(example)

    default = {"id", "created_at", "modified_at", "name", "dataset_id", "inputs"}
    unselected = default | {
        "outputs", "metadata", "source_run_id", "source_session_id", "source_trace_id",
        "source_run_start_time",
    }  # fmt: skip
    assert fields() == unselected
    assert fields(select=["outputs", "attachment_urls"]) == default | {"outputs", "attachment_urls"}
    assert fields(select="outputs", exclude_default_fields="True") == {"id", "outputs"}
    # There is nothing to replace the default fields with.
    assert fields(exclude_default_fields="true") == unselected


def test_examples_are_counted_with_the_same_filters(api, dataset, add):
    first = add({"n": 1}, split="train")
    add({"n": 2})
    path = f"{URL}/count"

    def count(**query):
        return api.get(path, dataset=str(dataset.pk), **query).json()

    assert count() == 2
    assert count(splits="train") == 1
    assert count(as_of=first["modified_at"]) == 1
    assert count(as_of="2020-01-01") == 0
    assert api.get(path, id=first["id"]).json() == 1
    assert api.get(path).status_code == 422


def test_a_change_keeps_what_it_does_not_name(api, add):
    example = add({"a": 1}, outputs={"b": 2}, metadata={"k": 1}, split="test")
    path = f"{URL}/{example['id']}"

    def change(**fields):
        response = api.patch(path, fields)
        assert response.status_code == 200, response.content
        return api.get(path).json()

    changed = change(inputs={"a": 2})
    assert changed == example | {"inputs": {"a": 2}, "modified_at": changed["modified_at"]}
    assert changed["modified_at"] > example["modified_at"]
    changed = change(metadata={"m": 1}, outputs=None)
    assert changed["metadata"] == {"m": 1, "dataset_split": ["test"]}
    assert changed["outputs"] == {"b": 2}
    assert change(split=["a", "b"])["metadata"] == {"m": 1, "dataset_split": ["a", "b"]}
    assert change(metadata={"dataset_split": ["c"]})["metadata"] == {"dataset_split": ["c"]}
    assert api.patch(path, {"inputs": {}, "id": str(uuid4())}).status_code == 422
    assert api.patch(path, {"overwrite": True}).status_code == 422
    assert api.patch(f"{URL}/{uuid4()}", {"inputs": {}}).status_code == 404


def test_bulk_changes_are_all_or_none(api, workspace, dataset, add):
    one, two = add({"n": 1}), add({"n": 2})
    other = make_dataset(workspace, {"n": 3}, name="other")
    (three,) = api.get(URL, dataset=str(other.pk)).json()
    versions = dataset.versions.count()

    refused = api.patch(
        f"{URL}/bulk", [{"id": one["id"], "inputs": {}}, {"id": str(uuid4()), "inputs": {}}]
    )
    moved = api.patch(f"{URL}/bulk", [{"id": one["id"], "dataset_id": str(other.pk)}])
    accepted = api.patch(
        f"{URL}/bulk",
        [{"id": example["id"], "inputs": {"n": 9}} for example in (one, two, three)],
    )

    assert (refused.status_code, refused.json()["code"]) == (404, "example_not_found")
    assert moved.status_code == 422
    assert accepted.json() == {"message": "3 examples updated", "count": 3}
    assert dataset.versions.count() == versions + 1
    assert other.versions.count() == 3
    assert [api.get(f"{URL}/{e['id']}").json()["inputs"] for e in (one, two, three)] == [
        {"n": 9}
    ] * 3


def test_a_deleted_example_stays_in_earlier_versions(api, dataset, add, listed):
    example = add({"n": 1})
    add({"n": 2})
    path = f"{URL}/{example['id']}"

    assert api.delete(path).status_code == 200

    assert api.get(path).status_code == 404
    assert api.delete(path).status_code == 404
    assert listed() == [{"n": 2}]
    assert listed(as_of=example["modified_at"]) == [{"n": 1}]
    assert api.get(path, as_of=example["modified_at"]).json()["inputs"] == {"n": 1}
    dataset.refresh_from_db()
    assert dataset.example_count == 1


def test_examples_are_deleted_together_or_not_at_all(api, workspace, dataset, add, listed):
    one, two = add({"n": 1}), add({"n": 2})
    versions = dataset.versions.count()

    assert api.delete(f"{URL}?example_ids={one['id']}&example_ids={uuid4()}").status_code == 404
    assert len(listed()) == 2

    path = f"{URL}?example_ids={one['id']}&example_ids={two['id']}"
    assert api.delete(path).status_code == 200
    assert listed() == []
    assert dataset.versions.count() == versions + 1
    assert api.delete(URL).status_code == 422


def test_reads_as_of_a_version_return_exactly_its_state(api, dataset, add, listed):
    first = add({"n": 1})
    api.patch(f"{URL}/{first['id']}", {"inputs": {"n": 2}})
    changed = api.get(f"{URL}/{first['id']}").json()
    add({"n": 3})

    assert listed(as_of=first["modified_at"]) == [{"n": 1}]
    assert listed(as_of=changed["modified_at"]) == [{"n": 2}]
    assert listed(as_of=changed["modified_at"].replace("Z", "+00:00")) == [{"n": 2}]
    assert listed(as_of="latest") == [{"n": 3}, {"n": 2}]
    assert listed(as_of="2020-01-01T00:00:00") == []
    unknown = api.get(URL, dataset=str(dataset.pk), as_of="prod")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "dataset_version_not_found")
    assert api.get(URL, id=first["id"], as_of="prod").status_code == 422
    by_id = api.get(URL, id=first["id"], as_of=first["modified_at"]).json()
    assert [example["inputs"] for example in by_id] == [{"n": 1}]


def test_an_example_is_made_from_a_run(api, workspace, dataset, add):
    run_id = stored_run(workspace, inputs={"q": 1}, outputs={"a": 2})

    linked = add({"own": 1}, source_run_id=str(run_id))
    copied = add(None, source_run_id=str(run_id), use_source_run_io=True)
    pending = add({"own": 1}, source_run_id=str(uuid4()))

    assert (linked["inputs"], linked["outputs"]) == ({"own": 1}, None)
    assert (copied["inputs"], copied["outputs"]) == ({"q": 1}, {"a": 2})
    assert linked["source_run_id"] == copied["source_run_id"] == str(run_id)
    assert copied["source_trace_id"] == str(run_id)
    source = read_run(workspace, run_id).row
    assert copied["source_session_id"] == str(source.project_id)
    assert datetime.fromisoformat(copied["source_run_start_time"]) == source.start_time
    assert pending["source_session_id"] is None
    unknown = api.post(
        URL,
        {"dataset_id": str(dataset.pk), "source_run_id": str(uuid4()), "use_source_run_io": True},
    )
    assert (unknown.status_code, unknown.json()["code"]) == (404, "source_run_not_found")


def test_a_run_knows_whether_an_example_was_made_from_it(api, workspace, add):
    used, unused = stored_run(workspace), stored_run(workspace)
    example = add({"own": 1}, source_run_id=str(used))

    def in_dataset(run_id):
        return api.get(f"/runs/{run_id}").json()["in_dataset"]

    assert (in_dataset(used), in_dataset(unused)) == (True, False)
    api.delete(f"{URL}/{example['id']}")
    assert in_dataset(used) is False


def test_the_run_of_another_workspace_is_unknown(make_api, workspace, other_workspace):
    run_id = stored_run(workspace, inputs={"q": "secret"})
    dataset = make_dataset(other_workspace)
    body = {"dataset_id": str(dataset.pk), "source_run_id": str(run_id)}
    api = make_api(other_workspace)

    assert api.post(URL, body | {"use_source_run_io": True}).status_code == 404
    assert api.post(URL, body | {"inputs": {}}).json()["source_session_id"] is None


@pytest.mark.parametrize("count", [3, 30])
def test_the_list_takes_a_fixed_number_of_queries(api, workspace, django_assert_num_queries, count):
    dataset = make_dataset(workspace, *({"n": n} for n in range(count)))
    api.get(URL, dataset=str(dataset.pk))

    with django_assert_num_queries(3):  # the dataset, the page's ids, its rows
        assert len(api.get(URL, dataset=str(dataset.pk)).json()) == count


@pytest.mark.parametrize("count", [3, 30])
def test_a_bulk_write_takes_a_fixed_number_of_queries(
    api, dataset, django_assert_max_num_queries, unexpired_caches, count
):
    body = [{"dataset_id": str(dataset.pk), "inputs": {"n": n}} for n in range(count)]
    api.post(f"{URL}/bulk", body)

    with django_assert_max_num_queries(12):
        assert len(api.post(f"{URL}/bulk", body).json()) == count
