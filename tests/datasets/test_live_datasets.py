"""Datasets by the public `langsmith` client against the running platform."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import uuid

import pytest
from langsmith import AsyncClient, Client
from langsmith.schemas import (
    AttachmentsOperations,
    Dataset,
    DataType,
    ExampleUpdate,
    ExampleUpsertWithAttachments,
)
from langsmith.utils import LangSmithConflictError, LangSmithError, LangSmithNotFoundError

from tests.live_client import client

__all__ = ["client"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
CSV = b"question,answer\nwhy?,so\nwho?,me\n"


def unique(name: str) -> str:
    return f"{name} {uuid.uuid4()}"


@pytest.fixture
def dataset(client: Client) -> Dataset:
    return client.create_dataset(unique("live"), description="d", metadata={"k": "v"})


def numbers(examples) -> list[int]:
    return sorted(example.inputs["n"] for example in examples)


def test_a_dataset_is_created_found_listed_and_deleted(client, dataset):
    assert dataset.metadata["k"] == "v"
    assert client.read_dataset(dataset_name=dataset.name).id == dataset.id
    assert client.read_dataset(dataset_id=dataset.id).description == "d"
    assert client.has_dataset(dataset_name=dataset.name)
    assert not client.has_dataset(dataset_name=unique("missing"))
    by_metadata = client.list_datasets(dataset_name_contains=dataset.name, metadata={"k": "v"})
    assert [item.id for item in by_metadata] == [dataset.id]
    assert [item.id for item in client.list_datasets(dataset_ids=[dataset.id])] == [dataset.id]
    with pytest.raises(LangSmithConflictError, match="already exists"):
        client.create_dataset(dataset.name)

    client.delete_dataset(dataset_name=dataset.name)
    assert not client.has_dataset(dataset_id=dataset.id)


def test_the_generated_client_lists_datasets_by_cursor(live, client):
    mark = unique("page")
    for n in range(3):
        client.create_dataset(f"{mark} {n}")

    async def list_names() -> list[str]:
        client = AsyncClient(api_url=live.api_url, api_key=live.api_key)
        pages = client.datasets.list_v2(name_contains=mark, page_size=2, sort_by="name")
        names = [item.name async for item in pages]
        # The connections belong to this loop, and `aclose` leaves those of resources open.
        await client.datasets._client.close()
        await client.aclose()
        return names

    assert asyncio.run(list_names()) == [f"{mark} {n}" for n in (2, 1, 0)]


def test_schemas_and_transformations_apply_to_examples(client):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    removal = {"path": ["inputs"], "transformation_type": "remove_extra_fields"}
    dataset = client.create_dataset(
        unique("schema"), data_type=DataType.kv, inputs_schema=schema, transformations=[removal]
    )
    assert (dataset.inputs_schema, dataset.transformations) == (schema, [removal])

    created = client.create_example(inputs={"n": 1, "extra": 2}, dataset_id=dataset.id)
    assert created.inputs == {"n": 1}
    with pytest.raises(LangSmithError, match=r"inputs\.n"):
        client.create_examples(dataset_id=dataset.id, examples=[{"inputs": {"n": "text"}}])


def test_examples_are_created_listed_changed_and_deleted(client, dataset):
    created = client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {"inputs": {"n": 1}, "outputs": {"a": 1}, "metadata": {"m": 1}, "split": "train"},
            {"inputs": {"n": 2}, "split": ["test", "hard"]},
            {"inputs": {"n": 3}},
        ],
    )
    ids = created["example_ids"]
    assert created["count"] == 3

    def listed(**query):
        return numbers(client.list_examples(dataset_id=dataset.id, **query))

    assert listed() == [1, 2, 3]
    assert listed(limit=2, offset=2) == [3]
    assert listed(splits=["test", "train"]) == [1, 2]
    assert listed(metadata={"m": 1}) == [1]
    assert listed(filter='exists(metadata, "m")') == [1]
    assert listed(example_ids=ids[1:]) == [2, 3]
    assert listed(full_text_contains=["2"]) == [2]
    only_ids = list(client.list_examples(dataset_id=dataset.id, select=["outputs"]))
    assert only_ids[0].outputs == {"a": 1}

    client.update_example(ids[0], outputs={"a": 2}, dataset_id=dataset.id)
    example = client.read_example(ids[0])
    assert (example.inputs, example.outputs) == ({"n": 1}, {"a": 2})
    assert example.metadata == {"m": 1, "dataset_split": ["train"]}
    client.update_examples(
        dataset_id=dataset.id,
        updates=[
            ExampleUpdate(id=ids[1], inputs={"n": 20}),
            ExampleUpdate(id=ids[2], metadata={"x": 1}, split="hard"),
        ],
    )
    assert listed() == [1, 3, 20]
    assert client.read_example(ids[2]).metadata == {"x": 1, "dataset_split": ["hard"]}

    client.delete_example(ids[0])
    client.delete_examples([ids[1]])
    assert listed() == [3]
    client.delete_examples([ids[2]], hard_delete=True)
    assert listed() == []
    with pytest.raises(LangSmithNotFoundError):
        client.read_example(ids[2])
    with pytest.raises(LangSmithNotFoundError):
        client.update_example(ids[2], inputs={}, dataset_id=dataset.id)


def test_versions_are_read_tagged_and_compared(client, dataset):
    first = client.create_example(inputs={"n": 1}, dataset_id=dataset.id)
    client.create_example(inputs={"n": 2}, dataset_id=dataset.id)
    client.update_dataset_tag(dataset_id=dataset.id, as_of=first.modified_at, tag="one")

    def listed(as_of):
        return numbers(client.list_examples(dataset_id=dataset.id, as_of=as_of))

    assert listed("one") == listed(first.modified_at) == [1]
    assert listed("latest") == [1, 2]
    assert client.read_dataset_version(dataset_id=dataset.id, tag="one").as_of == first.modified_at
    now = dt.datetime.now(dt.UTC)
    newest = client.read_dataset_version(dataset_id=dataset.id, as_of=now)
    assert newest.tags == ["latest"]
    assert len(list(client.list_dataset_versions(dataset_id=dataset.id))) == 3
    difference = client.diff_dataset_versions(
        dataset_id=dataset.id, from_version="one", to_version=newest.as_of
    )
    (second,) = client.list_examples(dataset_id=dataset.id, limit=1)
    assert difference.examples_added == [second.id]
    assert difference.examples_removed == difference.examples_modified == []
    assert client.read_example(first.id, as_of=first.modified_at).inputs == {"n": 1}


def test_splits_are_changed(client, dataset):
    example = client.create_example(inputs={"n": 1}, dataset_id=dataset.id)

    client.update_dataset_splits(dataset_id=dataset.id, split_name="test", example_ids=[example.id])
    assert client.list_dataset_splits(dataset_id=dataset.id) == ["base", "test"]
    client.update_dataset_splits(
        dataset_id=dataset.id, split_name="base", example_ids=[example.id], remove=True
    )
    assert client.list_dataset_splits(dataset_id=dataset.id) == ["test"]
    before = client.list_dataset_splits(dataset_id=dataset.id, as_of=example.modified_at)
    assert before == ["base"]


def test_attachments_are_stored_renamed_and_downloaded(client, dataset):
    created = client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {
                "inputs": {"n": 1},
                "attachments": {
                    "photo": ("image/png", b"pixels"),
                    "note": {"mime_type": "text/plain", "data": b"text"},
                },
            }
        ],
    )
    (example_id,) = created["example_ids"]

    def contents(example):
        return {name: item["reader"].read() for name, item in (example.attachments or {}).items()}

    assert contents(client.read_example(example_id)) == {"photo": b"pixels", "note": b"text"}
    (listed,) = client.list_examples(dataset_id=dataset.id, include_attachments=True)
    assert contents(listed) == {"photo": b"pixels", "note": b"text"}
    client.update_example(
        example_id,
        dataset_id=dataset.id,
        attachments_operations=AttachmentsOperations(rename={"note": "remark"}, retain=[]),
        attachments={"new": ("text/plain", b"more")},
    )
    assert contents(client.read_example(example_id)) == {"remark": b"text", "new": b"more"}


def test_an_example_is_made_from_a_run(client, dataset):
    project = unique("source")
    run_id = uuid.uuid4()
    client.create_run("r", {"n": 7}, "chain", id=run_id, project_name=project, outputs={"a": 1})
    client.update_run(run_id, end_time=dt.datetime.now(dt.UTC))
    client.flush()

    example = client.create_example(
        source_run_id=run_id, use_source_run_io=True, dataset_id=dataset.id
    )

    assert (example.inputs, example.outputs) == ({"n": 7}, {"a": 1})
    assert example.source_run_id == run_id


def test_a_csv_file_is_uploaded_and_exported_for_finetuning(client):
    dataset = client.upload_csv(
        ("file.csv", io.BytesIO(CSV)),
        input_keys=["question"],
        output_keys=["answer"],
        name=unique("csv"),
        description="from a file",
    )

    assert dataset.example_count == 2
    lines = client.read_dataset_openai_finetuning(dataset_id=dataset.id)
    assert lines[0] == {
        "messages": [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}]
    }
    with pytest.raises(LangSmithConflictError, match="already exists"):
        client.upload_csv(
            ("file.csv", io.BytesIO(CSV)),
            input_keys=["question"],
            output_keys=[],
            name=dataset.name,
        )


def test_a_shared_dataset_is_read_and_cloned_by_its_link(client, dataset):
    client.create_examples(dataset_id=dataset.id, inputs=[{"n": n} for n in range(120)])
    assert client.share_dataset(dataset.id)["dataset_id"] == str(dataset.id)
    token = client.read_dataset_shared_schema(dataset.id)["share_token"]

    assert client.read_shared_dataset(token).id == dataset.id
    assert numbers(client.list_shared_examples(token)) == list(range(120))
    clone = client.clone_public_dataset(token, dataset_name=unique("clone"))
    assert numbers(client.list_examples(dataset_id=clone.id)) == list(range(120))

    client.unshare_dataset(dataset.id)
    with pytest.raises(LangSmithNotFoundError):
        client.read_shared_dataset(token)


def test_the_deprecated_upsert_creates_and_changes(client, dataset):
    example_id = uuid.uuid4()
    for n in (1, 2):
        upsert = {"id": example_id, "dataset_id": dataset.id, "inputs": {"n": n}}
        response = client.upsert_examples_multipart(
            upserts=[ExampleUpsertWithAttachments(**upsert)]
        )
        assert response["example_ids"] == [str(example_id)]

    assert client.read_example(example_id).inputs == {"n": 2}


def test_the_asynchronous_client_has_the_same_methods(live):
    async def use() -> list[int]:
        client = AsyncClient(api_url=live.api_url, api_key=live.api_key)
        dataset = await client.create_dataset(unique("async"))
        await client.create_example(inputs={"n": 1}, dataset_id=dataset.id)
        row = await client.read_dataset(dataset_name=dataset.name)
        listed = [e.inputs["n"] async for e in client.list_examples(dataset_id=row.id)]
        await client.delete_dataset(dataset_id=dataset.id)
        await client.aclose()
        return listed

    assert asyncio.run(use()) == [1]


def test_an_experiment_refers_to_its_dataset(client, dataset):
    project = client.create_project(unique("experiment"), reference_dataset_id=dataset.id)

    assert project.reference_dataset_id == dataset.id
    assert client.read_dataset(dataset_id=dataset.id).session_count == 1
    with pytest.raises(LangSmithNotFoundError):
        client.create_project(unique("lost"), reference_dataset_id=uuid.uuid4())
