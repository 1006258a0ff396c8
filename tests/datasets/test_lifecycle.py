"""Copies of datasets, and the removal and restoration of deleted ones."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from apps.core import object_storage
from apps.datasets.models import (
    Dataset,
    DatasetTag,
    DatasetVersion,
    ExampleRevision,
)
from apps.datasets.services.attachments import ExampleFile
from apps.datasets.services.examples import create_examples
from apps.datasets.services.removal import delete_all, remove_deleted
from tests.factories.datasets import make_dataset, new_example
from tests.factories.tracing import read_run, stored_run

CLONE = "/datasets/clone"


@pytest.fixture
def source_run(workspace):
    return stored_run(workspace)


@pytest.fixture
def source(workspace, source_run):
    """A dataset with three examples in three versions; the last has a file and a source run."""
    dataset = make_dataset(workspace, {"n": 1}, name="source")
    create_examples(dataset=dataset, examples=[new_example({"n": 2}, split="test")])
    example = new_example({"n": 3}, outputs={"o": 1}, metadata={"k": 1}, source_run_id=source_run)
    example.files.append(ExampleFile("a", "text/plain", b"content"))
    create_examples(dataset=dataset, examples=[example])
    dataset.refresh_from_db()
    return dataset


def clone(api, source, target, **fields):
    body = {"source_dataset_id": str(source.pk), "target_dataset_id": str(target.pk), **fields}
    response = api.post(CLONE, body)
    content = b"".join(response) if response.streaming else response.content
    return response.status_code, json.loads(content)


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, source):
    target = make_dataset(workspace)
    foreign = make_dataset(other_workspace, {"secret": 1})

    assert clone(make_api(workspace, "read"), source, target)[0] == 403
    assert clone(make_api(workspace), foreign, target)[0] == 404
    assert clone(make_api(other_workspace), source, foreign)[0] == 404
    assert clone(make_api(workspace), source, foreign)[0] == 404
    path = f"/datasets/{source.pk}/restore"
    make_api(workspace).delete(f"/datasets/{source.pk}")
    assert make_api(workspace, "read").post(path, {}).status_code == 403
    assert make_api(other_workspace).post(path, {}).status_code == 404
    assert make_api(other_workspace).get("/datasets/deleted").json() == []


def test_a_clone_has_the_same_examples_with_new_ids(api, workspace, source, source_run):
    target = make_dataset(workspace)

    status, created = clone(api, source, target)

    assert status == 200
    originals = api.get("/examples", dataset=str(source.pk), select="attachment_urls").json()
    assert [example["inputs"]["n"] for example in created] == [3, 2, 1]
    assert {e["id"] for e in created}.isdisjoint(e["id"] for e in originals)
    assert (created[0]["outputs"], created[0]["metadata"]) == (
        {"o": 1},
        {"k": 1, "dataset_split": ["base"]},
    )
    assert created[1]["metadata"] == {"dataset_split": ["test"]}
    assert created[0]["source_run_id"] == str(source_run)
    project_id = read_run(workspace, source_run).row.project_id
    assert created[0]["source_session_id"] == str(project_id)
    assert target.versions.count() == 2
    assert api.get("/examples/count", dataset=str(target.pk)).json() == 3
    rows = ExampleRevision.objects.for_workspace(workspace)
    (entry,) = rows.get(dataset=target, attachments__isnull=False).attachments
    assert str(target.pk) in entry["path"]
    assert object_storage.get(entry["path"]) == b"content"


def test_a_clone_selects_a_version_examples_or_splits(api, workspace, source):
    second = source.versions.order_by("as_of")[2]
    (three, _, one) = api.get("/examples", dataset=str(source.pk)).json()

    def numbers(**fields):
        target = make_dataset(workspace, name=str(uuid4()))
        status, created = clone(api, source, target, **fields)
        return [example["inputs"]["n"] for example in created] if status == 200 else status

    assert numbers(as_of=second.as_of.isoformat()) == [2, 1]
    assert numbers(examples=[three["id"], one["id"]]) == [3, 1]
    assert numbers(split="test") == [2]
    assert numbers(split=["test", "base"]) == [3, 2, 1]
    assert numbers(examples=[str(uuid4())]) == 404
    assert numbers(as_of="nope") == 404
    assert numbers(colour="red") == 422


def test_a_clone_must_fit_the_schema_of_the_target(api, workspace, source):
    target = make_dataset(workspace, inputs_schema={"properties": {"n": {"maximum": 2}}})

    status, error = clone(api, source, target)

    assert (status, error["code"]) == (422, "example_refused")
    assert error["errors"][0]["field"] == "inputs.n"
    assert not ExampleRevision.objects.for_workspace(workspace).filter(dataset=target).exists()


def test_a_deleted_dataset_is_restored_with_versions_and_tags(api, workspace, source):
    at = source.versions.order_by("as_of")[1].as_of
    api.put(f"/datasets/{source.pk}/tags", {"as_of": at.isoformat(), "tag": "old"})
    api.delete(f"/datasets/{source.pk}")

    (listed,) = api.get("/datasets/deleted").json()
    restored = api.post(f"/datasets/{source.pk}/restore", {})

    assert (listed["id"], listed["name"]) == (str(source.pk), "source")
    assert listed["removed_at"] > listed["deleted_at"]
    assert restored.status_code == 200, restored.content
    assert restored.json()["example_count"] == 3
    assert api.get("/datasets/deleted").json() == []
    examples = api.get("/examples", dataset=str(source.pk), as_of="old").json()
    assert [example["inputs"] for example in examples] == [{"n": 1}]
    assert api.post(f"/datasets/{source.pk}/restore", {}).status_code == 404


def test_a_dataset_is_not_restored_over_another_of_its_name(api, workspace, source):
    api.delete(f"/datasets/{source.pk}")
    deleted = list(Dataset.objects.for_workspace(workspace).values())
    taken = make_dataset(workspace, name="source")

    response = api.post(f"/datasets/{source.pk}/restore", {})

    assert (response.status_code, response.json()["code"]) == (409, "dataset_name_taken")
    assert list(Dataset.objects.for_workspace(workspace).exclude(pk=taken.pk).values()) == deleted


def test_a_dataset_is_removed_after_its_delay_and_not_before(
    api, workspace, source, settings, monkeypatch
):
    monkeypatch.setattr("apps.datasets.services.removal._BATCH_SIZE", 2)
    settings.DATASET_RESTORE_DAYS = 3
    kept = make_dataset(workspace, {"n": 1}, name="kept")
    rows = ExampleRevision.objects.for_workspace(workspace)
    (entry,) = rows.get(attachments__isnull=False).attachments
    api.delete(f"/datasets/{source.pk}")
    now = timezone.now()

    assert remove_deleted(now + timedelta(days=2)) == 0
    assert rows.filter(dataset=source).count() == 3
    assert remove_deleted(now + timedelta(days=4)) == 1
    assert remove_deleted(now + timedelta(days=4)) == 0

    assert list(Dataset.objects.for_workspace(workspace)) == [kept]
    assert list(rows.values_list("dataset_id", flat=True)) == [kept.pk]
    assert DatasetVersion.objects.for_workspace(workspace).count() == 2
    assert not DatasetTag.objects.for_workspace(workspace).exists()
    with pytest.raises(FileNotFoundError):
        object_storage.get(entry["path"])


def test_the_datasets_of_a_deleted_workspace_are_removed_without_delay(workspace, source):
    delete_all(workspace)

    assert remove_deleted() == 1
    assert not ExampleRevision.objects.for_workspace(workspace).exists()
