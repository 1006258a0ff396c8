"""Examples in multipart bodies, with attachments."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.test import Client

from apps.core import object_storage
from apps.datasets.models import ExampleRevision
from tests.factories.datasets import make_dataset
from tests.factories.tracing import MULTIPART, ingest_multipart_run, multipart_body

UPSERT = "/v1/platform/examples/multipart"
PNG = "Content-Type: image/png; length={}"


def url(dataset):
    return f"/v1/platform/datasets/{dataset.pk}/examples"


def send(api, method, path, *parts):
    return api.client.generic(method, path, multipart_body(*parts), content_type=MULTIPART)


def file_part(example_id, name, content, mime_type="image/png"):
    head = f"Content-Type: {mime_type}; length={len(content)}"
    return (f"{example_id}.attachment.{name}", content, head)


def download_all(example):
    """Return the content of each attachment, fetched by its URL without credentials."""
    urls = example["attachment_urls"] or {}
    return {
        name: b"".join(Client().get(entry["presigned_url"].removeprefix("http://127.0.0.1:8000")))
        for name, entry in urls.items()
    }


@pytest.fixture
def with_files(api, dataset):
    """An example with the attachments `a` and `b`."""
    example_id = str(uuid4())
    response = send(
        api, "POST", url(dataset),
        (example_id, {"metadata": {"k": 1}}),
        (f"{example_id}.inputs", {"q": 1}),
        file_part(example_id, "a", b"first"),
        file_part(example_id, "b", b"second", "text/plain"),
    )  # fmt: skip
    assert response.status_code == 201, response.content
    return example_id


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, dataset):
    example_id = str(uuid4())
    parts = [(example_id, {}), (f"{example_id}.inputs", {"a": 1})]

    assert send(make_api(other_workspace), "POST", url(dataset), *parts).status_code == 404
    assert send(make_api(other_workspace), "PATCH", url(dataset), *parts).status_code == 404
    assert send(make_api(workspace, "read"), "POST", url(dataset), *parts).status_code == 403
    assert send(make_api(workspace, "read"), "POST", UPSERT, *parts).status_code == 403
    assert not ExampleRevision.objects.for_workspace(workspace).exists()


def test_parts_in_any_order_create_examples_in_one_version(api, dataset):
    one, two = str(uuid4()), str(uuid4())

    response = send(
        api, "POST", url(dataset),
        (f"{one}.inputs", {"n": 1}, "Content-Type: application/json; length=8"),
        (one, {"split": "test", "created_at": "2026-01-02T03:04:05.678901+00:00"}),
        (f"{two}.outputs", {"z": 1}),
        (two, {}),
        (f"{two}.inputs", {"n": 2}),
    )  # fmt: skip

    dataset.refresh_from_db()
    assert response.status_code == 201
    assert response.json() == {
        "count": 2,
        "example_ids": [one, two],
        "as_of": dataset.latest_version_at.isoformat().replace("+00:00", "Z"),
    }
    assert dataset.versions.count() == 2
    first, second = api.get("/examples", dataset=str(dataset.pk)).json()
    assert (first["id"], first["inputs"], first["outputs"]) == (one, {"n": 1}, None)
    assert first["created_at"] == "2026-01-02T03:04:05.678901Z"
    assert first["metadata"] == {"dataset_split": ["test"]}
    assert (second["id"], second["outputs"]) == (two, {"z": 1})


def test_attachments_are_downloaded_by_url_without_key(api, dataset, with_files):
    example = api.get(f"/examples/{with_files}").json()

    assert download_all(example) == {"attachment.a": b"first", "attachment.b": b"second"}
    assert example["attachment_urls"]["attachment.b"]["mime_type"] == "text/plain"
    (listed,) = api.get("/examples", dataset=str(dataset.pk), select="attachment_urls").json()
    assert set(listed["attachment_urls"]) == {"attachment.a", "attachment.b"}
    assert "attachment_urls" not in api.get("/examples", dataset=str(dataset.pk)).json()[0]


def change(api, dataset, example_id, *parts):
    response = send(api, "PATCH", url(dataset), (example_id, {}), *parts)
    assert response.status_code == 201, response.content
    return download_all(api.get(f"/examples/{example_id}").json())


def operations(example_id, **fields):
    return (f"{example_id}.attachments_operations", fields)


def test_a_change_without_files_keeps_the_attachments(api, dataset, with_files):
    before = api.get(f"/examples/{with_files}").json()

    kept = change(api, dataset, with_files, (f"{with_files}.outputs", {"x": 1}))

    assert kept == {"attachment.a": b"first", "attachment.b": b"second"}
    after = api.get(f"/examples/{with_files}").json()
    assert (after["inputs"], after["outputs"]) == ({"q": 1}, {"x": 1})
    assert after["metadata"] == before["metadata"]


def test_files_without_operations_replace_all_attachments(api, dataset, with_files):
    assert change(api, dataset, with_files, file_part(with_files, "c", b"third")) == {
        "attachment.c": b"third"
    }


def test_operations_retain_rename_and_add_attachments(api, dataset, with_files):
    example = change(
        api, dataset, with_files,
        operations(with_files, rename={"a": "renamed"}, retain=["b"]),
        file_part(with_files, "b", b"newer"),
        file_part(with_files, "c", b"third"),
    )  # fmt: skip

    assert example == {
        "attachment.renamed": b"first",
        "attachment.b": b"newer",
        "attachment.c": b"third",
    }
    assert change(api, dataset, with_files, operations(with_files, retain=["c"])) == {
        "attachment.c": b"third"
    }
    assert change(api, dataset, with_files, operations(with_files)) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"rename": {"a": "b"}, "retain": ["b"]},
        {"rename": {"a": "c"}, "retain": ["a"]},
        {"rename": {"a": "c", "b": "c"}},
        {"retain": ["missing"]},
        {"rename": {"missing": "x"}},
        {"rename": {"a": ""}},
        {"drop": ["a"]},
    ],
)
def test_contradicting_operations_are_refused(api, dataset, with_files, fields):
    response = send(api, "PATCH", url(dataset), (with_files, {}), operations(with_files, **fields))

    assert response.status_code == 422
    assert set(download_all(api.get(f"/examples/{with_files}").json())) == {
        "attachment.a",
        "attachment.b",
    }


def test_earlier_versions_keep_their_attachments(api, dataset, with_files):
    before = api.get(f"/examples/{with_files}").json()
    change(api, dataset, with_files, operations(with_files))

    earlier = api.get(f"/examples/{with_files}", as_of=before["modified_at"]).json()

    assert download_all(earlier) == {"attachment.a": b"first", "attachment.b": b"second"}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([("x", {})], "`x`"),
        ([("{id}.inputs", {"a": 1})], "missing"),
        ([("{id}", {})], "inputs"),
        ([("{id}", {"colour": "red"}), ("{id}.inputs", {})], "colour"),
        ([("{id}", {}), ("{id}.inputs", {}), ("{id}.serialized", {})], "serialized"),
        ([("{id}", {}), ("{id}.inputs", {}, "Content-Type: a/b; length=9")], "truncated"),
        ([("{id}", {}), ("{id}.inputs", b"{")], "inputs"),
        ([("{id}", {}), ("{id}.inputs", {}), ("{id}.attachments_operations", {})], "operations"),
        ([("{id}", {}), ("{id}.inputs", {}), ("{id}.attachment.", b"x")], "attachment"),
        ([("{id}", {"dataset_id": str(uuid4())}), ("{id}.inputs", {})], "dataset_id"),
    ],
)
def test_a_malformed_part_is_refused_and_nothing_is_stored(api, workspace, dataset, parts, text):
    example_id = str(uuid4())
    named = [(name.replace("{id}", example_id), *rest) for name, *rest in parts]

    response = send(api, "POST", url(dataset), *named)

    assert response.status_code == 422
    assert text in response.json()["detail"]
    assert not ExampleRevision.objects.for_workspace(workspace).exists()


def test_a_body_that_is_not_multipart_is_refused(api, dataset):
    assert api.post(url(dataset), {}).status_code == 400
    truncated = api.client.generic("POST", url(dataset), b"--x", content_type=MULTIPART)
    assert (truncated.status_code, truncated.json()["code"]) == (400, "bad_body")


def test_a_change_of_an_unknown_example_is_refused(api, workspace, dataset):
    other = make_dataset(workspace, {"n": 1}, name="other")
    (example,) = api.get("/examples", dataset=str(other.pk)).json()

    responses = [
        send(api, "PATCH", url(dataset), (example_id, {"split": "x"}))
        for example_id in (str(uuid4()), example["id"])
    ]

    # The Python client raises `LangSmithConflictError` for an example of another dataset.
    codes = [(r.status_code, r.json()["code"]) for r in responses]
    assert codes == [(404, "example_not_found"), (409, "example_of_another_dataset")]
    assert responses[1].json()["errors"] == [{"example_id": example["id"]}]


def test_upsert_creates_and_changes_in_one_version(api, dataset, with_files):
    new_id = str(uuid4())
    versions = dataset.versions.count()
    body = {"dataset_id": str(dataset.pk)}

    response = send(
        api, "POST", UPSERT,
        (with_files, body), (f"{with_files}.inputs", {"q": 2}),
        (new_id, body | {"split": "test"}), (f"{new_id}.inputs", {"q": 3}),
    )  # fmt: skip

    assert response.status_code == 201
    assert response.json()["example_ids"] == [with_files, new_id]
    assert dataset.versions.count() == versions + 1
    assert api.get(f"/examples/{with_files}").json()["inputs"] == {"q": 2}
    assert len(download_all(api.get(f"/examples/{with_files}").json())) == 2
    assert api.get(f"/examples/{new_id}").json()["inputs"] == {"q": 3}
    mixed = send(api, "POST", UPSERT, (new_id, {}), (f"{new_id}.inputs", {}))
    assert mixed.status_code == 422


def test_attachments_are_copied_from_the_source_run(api, workspace, dataset):
    run_id = ingest_multipart_run(workspace, {"photo": b"pixels", "note": b"text"})
    all_id, one_id, bad_id = (str(uuid4()) for _ in range(3))
    body = {"source_run_id": str(run_id)}

    response = send(
        api, "POST", url(dataset),
        (all_id, body | {"use_source_run_io": True}),
        (one_id, body | {"use_source_run_attachments": ["note"]}), (f"{one_id}.inputs", {}),
    )  # fmt: skip
    missing = send(
        api, "POST", url(dataset),
        (bad_id, body | {"use_source_run_attachments": ["x"]}), (f"{bad_id}.inputs", {}),
    )  # fmt: skip

    assert response.status_code == 201, response.content
    assert missing.status_code == 422
    copied = api.get(f"/examples/{all_id}").json()
    assert copied["inputs"] == {"question": "why?"}
    assert download_all(copied) == {"attachment.photo": b"pixels", "attachment.note": b"text"}
    assert download_all(api.get(f"/examples/{one_id}").json()) == {"attachment.note": b"text"}


def test_hard_deletion_removes_the_example_from_all_versions(
    make_api, workspace, dataset, with_files, django_capture_on_commit_callbacks
):
    api = make_api(workspace)
    before = api.get(f"/examples/{with_files}").json()
    (entry, _) = ExampleRevision.objects.for_workspace(workspace).get().attachments
    body = {"example_ids": [with_files], "hard_delete": True}
    path = "/v1/platform/datasets/examples/delete"
    assert make_api(workspace, "read").post(path, body).status_code == 403

    with django_capture_on_commit_callbacks(execute=True):
        response = api.post(path, body)

    assert response.status_code == 200
    assert api.get(f"/examples/{with_files}", as_of=before["modified_at"]).status_code == 404
    assert api.get("/examples/count", dataset=str(dataset.pk)).json() == 0
    assert not ExampleRevision.objects.for_workspace(workspace).exists()
    with pytest.raises(FileNotFoundError):
        object_storage.get(entry["path"])
    assert api.post(path, body).status_code == 404


def test_platform_deletion_of_one_example_can_be_repeated(api, dataset, with_files):
    path = f"{url(dataset)}/{with_files}"
    versions = dataset.versions.count()

    assert api.delete(path).status_code == 204
    assert api.delete(path).status_code == 204

    assert dataset.versions.count() == versions + 1
    assert api.delete(f"{url(dataset)}/{uuid4()}").status_code == 404
    assert api.get(f"/examples/{with_files}").status_code == 404
    soft = {"example_ids": [with_files]}
    assert api.post("/v1/platform/datasets/examples/delete", soft).status_code == 404
