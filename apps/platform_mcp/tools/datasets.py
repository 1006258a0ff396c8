"""Tools of datasets and examples."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import PlatformApi, ToolError, find_dataset
from apps.platform_mcp.registry import Arguments, Flag, JSONObject, Object, Texts, ToolGroup

MAX_EXAMPLES = 100

tools = ToolGroup()


class DatasetArguments(Arguments):
    dataset_id: UUID | None = None
    dataset_name: str | None = None


class ListDatasets(Arguments):
    dataset_ids: Texts | None = None
    data_type: str | None = Field(None, description="kv, llm or chat.")
    dataset_name: str | None = None
    dataset_name_contains: str | None = None
    metadata: Object | None = None
    limit: int = Field(20, ge=1, le=100)


@tools.declare("List datasets", Permission.DATASETS_READ)
def list_datasets(api: PlatformApi, arguments: ListDatasets) -> JSONObject:
    """List datasets, newest first."""
    rows = api.get(
        "/datasets",
        id=arguments.dataset_ids,
        data_type=arguments.data_type,
        name=arguments.dataset_name,
        name_contains=arguments.dataset_name_contains,
        metadata=arguments.metadata,
        limit=arguments.limit,
    )
    return {"datasets": rows, "total_count": len(rows)}


@tools.declare("Read a dataset", Permission.DATASETS_READ)
def read_dataset(api: PlatformApi, arguments: DatasetArguments) -> JSONObject:
    """Read a dataset's description, schemas and counts."""
    dataset_id = find_dataset(api, arguments.dataset_id, arguments.dataset_name)
    return {"dataset": api.get(f"/datasets/{dataset_id}")}


class ListExamples(DatasetArguments):
    example_ids: Texts | None = None
    filter: str | None = Field(None, description='For example has(metadata, \'{"key": "value"}\').')
    metadata: Object | None = None
    splits: Texts | None = None
    inline_s3_urls: Flag | None = Field(
        None, description="Both values mean the same: inputs and outputs are in the result."
    )
    include_attachments: Flag = Field(False, description="Return links of the attachments.")
    as_of: str | None = Field(None, description="A version: a tag, or a time.")
    limit: int = Field(10, ge=1, le=MAX_EXAMPLES)
    offset: int = Field(0, ge=0)


@tools.declare("List examples", Permission.DATASETS_READ)
def list_examples(api: PlatformApi, arguments: ListExamples) -> JSONObject:
    """List examples of a dataset, or those with the ids; very long texts are shortened."""
    dataset_id = None
    if not arguments.example_ids:
        dataset_id = find_dataset(api, arguments.dataset_id, arguments.dataset_name)
    fields = ["metadata", "outputs", "source_run_id"]
    rows = api.get(
        "/examples",
        dataset=dataset_id,
        id=arguments.example_ids,
        filter=arguments.filter,
        metadata=arguments.metadata,
        splits=arguments.splits,
        as_of=arguments.as_of,
        select=[*fields, "attachment_urls"] if arguments.include_attachments else fields,
        inline_s3_urls=arguments.inline_s3_urls,
        limit=arguments.limit,
        offset=arguments.offset,
    )
    return {"examples": rows, "total_count": len(rows)}


class ReadExample(Arguments):
    example_id: UUID
    as_of: str | None = Field(None, description="A version: a tag, or a time.")


@tools.declare("Read an example", Permission.DATASETS_READ)
def read_example(api: PlatformApi, arguments: ReadExample) -> JSONObject:
    """Read one example with inputs, outputs and metadata."""
    return {"example": api.get(f"/examples/{arguments.example_id}", as_of=arguments.as_of)}


class ExampleFields(Arguments):
    inputs: JSONObject
    outputs: JSONObject | None = None
    metadata: JSONObject | None = None
    split: str | None = None


class CreateDataset(Arguments):
    dataset_name: str = Field(min_length=1)
    description: str | None = None
    examples: list[ExampleFields] = Field(default=[], max_length=MAX_EXAMPLES)


@tools.declare("Create a dataset", Permission.DATASETS_WRITE, changes=True)
def create_dataset(api: PlatformApi, arguments: CreateDataset) -> JSONObject:
    """Create a dataset, with examples if given."""
    body = {"name": arguments.dataset_name, "description": arguments.description}
    dataset = api.post("/datasets", body)
    ids = []
    if arguments.examples:
        rows = [_fields(row) | {"dataset_id": dataset["id"]} for row in arguments.examples]
        ids = [row["id"] for row in api.post("/examples/bulk", rows)]
    return {"dataset": {**dataset, "example_count": len(ids)}, "example_ids": ids}


class ExampleUpdate(Arguments):
    id: UUID
    inputs: JSONObject | None = None
    outputs: JSONObject | None = None
    metadata: JSONObject | None = None
    split: str | None = None


class UpdateExamples(Arguments):
    updates: list[ExampleUpdate] = Field(min_length=1, max_length=MAX_EXAMPLES)


@tools.declare("Change examples", Permission.DATASETS_WRITE, changes=True)
def update_examples(api: PlatformApi, arguments: UpdateExamples) -> JSONObject:
    """Change fields of examples; each dataset gets one new version."""
    if len({update.id for update in arguments.updates}) < len(arguments.updates):
        raise ToolError("updates: an example may occur once.")
    result: JSONObject = api.patch("/examples/bulk", [_fields(row) for row in arguments.updates])
    return result


def _fields(row: Arguments) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_none=True)
