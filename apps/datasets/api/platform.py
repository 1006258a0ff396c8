"""Endpoints of examples under `/v1/platform`: multipart bodies and changes in bulk."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets.api.multipart import decode_changes, decode_new_examples, read_parts
from apps.datasets.api.request_schema import request_schema
from apps.datasets.services import examples as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.examples import MetadataOperation, WrittenExamples
from apps.datasets.services.hard_deletion import erase_examples
from apps.datasets.wire import WireDeletion, WireMetadataChange, WireOperation, decode
from apps.organizations.permissions import Permission

MAX_IDS = 10_000
MAX_OPERATIONS = 50
MAX_ARRAY_OPERATIONS = 10
MAX_VALUES = 1000
MAX_TEXT_BYTES = 255
MAX_VALUE_BYTES = 65_536
MULTIPART = {"multipart/form-data": {"type": "object", "additionalProperties": True}}


class DatasetExamplesView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=MULTIPART, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Create examples with attachments in one version: all or none."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        examples = decode_new_examples(read_parts(request._request))
        for example in examples:
            _check_dataset(example.wire.dataset_id, dataset_id)
        written = services.create_examples(dataset=dataset, examples=examples)
        return Response(_written_json(written), status=201)

    @extend_schema(request=MULTIPART, responses=dict)
    def patch(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Change examples and their attachments in one version: all or none."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        changes = decode_changes(read_parts(request._request))
        for change in changes:
            _check_dataset(change.wire.dataset_id, dataset_id)
        written = services.update_examples(dataset=dataset, changes=changes)
        return Response(_written_json(written), status=201)


class UpsertExamplesView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=MULTIPART, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create the examples that the dataset does not have, and change the others."""
        examples = decode_new_examples(read_parts(request._request))
        ids = {example.wire.dataset_id for example in examples}
        dataset_id = next(iter(ids), None)
        if dataset_id is None or len(ids) > 1:
            raise core_errors.Invalid("Every example needs the same `dataset_id`.")
        dataset = get_dataset(self.workspace_id, dataset_id)
        written = services.upsert_examples(dataset=dataset, examples=examples)
        return Response(_written_json(written), status=201)


class DatasetExampleView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, dataset_id: UUID, example_id: UUID) -> Response:
        """Delete the example from the latest version; no effect if it is deleted already."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        services.delete_example(dataset=dataset, example_id=example_id)
        return Response(status=204)


class DeleteExamplesView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(WireDeletion), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Delete examples: from the latest version or, with `hard_delete`, from all versions."""
        wire = decode(request.body, WireDeletion)
        if not 0 < len(wire.example_ids) <= MAX_IDS:
            raise core_errors.Invalid(f"`example_ids` must have 1 to {MAX_IDS} ids.")
        if wire.hard_delete:
            request.auth.require(Permission.DATASETS_DELETE)
            erase_examples(workspace_id=self.workspace_id, example_ids=wire.example_ids)
        else:
            services.delete_examples(workspace_id=self.workspace_id, example_ids=wire.example_ids)
        return Response({"message": f"{len(set(wire.example_ids))} examples deleted"})


class ExampleMetadataView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(WireMetadataChange), responses={207: dict})
    def patch(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Apply the same changes of metadata to examples in one version.

        Examples that the dataset does not have are skipped and reported.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireMetadataChange)
        if not 0 < len(wire.example_ids) <= MAX_IDS:
            raise core_errors.Invalid(f"`example_ids` must have 1 to {MAX_IDS} ids.")
        operations = _parse_operations(wire.operations)
        changed = services.update_metadata(
            dataset=dataset, example_ids=wire.example_ids, operations=operations
        )
        statuses = [_status(example_id, changed) for example_id in wire.example_ids]
        return Response({"statuses": statuses}, status=207)


def _parse_operations(operations: list[WireOperation]) -> list[MetadataOperation]:
    arrays = [item for item in operations if item.operation.upper() != "SET"]
    if not 0 < len(operations) <= MAX_OPERATIONS or len(arrays) > MAX_ARRAY_OPERATIONS:
        raise core_errors.Invalid(
            f"`operations` must have 1 to {MAX_OPERATIONS} operations, at most"
            f" {MAX_ARRAY_OPERATIONS} of them on arrays."
        )
    return [_parse_operation(item) for item in operations]


def _parse_operation(wire: WireOperation) -> MetadataOperation:
    kind = wire.operation.upper()
    if kind not in {"SET", "ARRAY_ADD", "ARRAY_REMOVE"}:
        raise core_errors.Invalid(
            f"`operation` must be SET, ARRAY_ADD or ARRAY_REMOVE, not {wire.operation:.40}."
        )
    texts = [wire.key, *wire.values]
    if len(wire.values) > MAX_VALUES or any(
        not text or "\x00" in text or len(text.encode()) > MAX_TEXT_BYTES for text in texts
    ):
        raise core_errors.Invalid(
            f"`key` and each of at most {MAX_VALUES} `values` must have 1 to {MAX_TEXT_BYTES} bytes"
            " without NUL."
        )
    return MetadataOperation(wire.key, kind, wire.parsed_value(MAX_VALUE_BYTES), wire.values)


def _status(example_id: UUID, changed: set[UUID]) -> dict[str, Any]:
    if example_id in changed:
        return {"id": example_id, "status": "UPDATED"}
    return {
        "id": example_id,
        "status": "NOT_FOUND",
        "description": "The latest version of the dataset has no such example.",
    }


def _check_dataset(named_id: UUID | None, dataset_id: UUID) -> None:
    if named_id not in {None, dataset_id}:
        raise core_errors.Invalid("`dataset_id` is the id of another dataset than the path's.")


def _written_json(written: WrittenExamples) -> dict[str, Any]:
    return {
        "count": len(written.example_ids),
        "example_ids": written.example_ids,
        "as_of": written.as_of,
    }


routes = [
    path("v1/platform/examples/multipart", UpsertExamplesView.as_view(), name="example-upsert"),
    path(
        "v1/platform/datasets/examples/delete",
        DeleteExamplesView.as_view(),
        name="example-bulk-delete",
    ),
    path(
        "v1/platform/datasets/<uuid:dataset_id>/examples",
        DatasetExamplesView.as_view(),
        name="dataset-examples",
    ),
    path(
        "v1/platform/datasets/<uuid:dataset_id>/examples/metadata",
        ExampleMetadataView.as_view(),
        name="example-metadata",
    ),
    path(
        "v1/platform/datasets/<uuid:dataset_id>/examples/<uuid:example_id>",
        DatasetExampleView.as_view(),
        name="dataset-example",
    ),
]
