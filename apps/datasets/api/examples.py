"""Endpoints of examples with JSON bodies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets import errors
from apps.datasets.api.queries import (
    ExampleFilterSerializer,
    ExampleListSerializer,
    ExampleSelection,
    order_examples,
    query_params,
)
from apps.datasets.api.rendering import example_json, fields_to_render, validated_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services import examples as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.embedded_content import FIELDS, with_embedded_content
from apps.datasets.services.examples import ExampleChange, NewExample
from apps.datasets.services.page_start import find_page_start
from apps.datasets.services.versions import resolve_as_of
from apps.datasets.wire import WireExample, WireExampleUpdate, decode
from apps.organizations.permissions import Permission

MAX_DELETED = 1000


class ExampleReadSerializer(serializers.Serializer[Any]):
    as_of = serializers.CharField(required=False)
    dataset = serializers.UUIDField(required=False)


class DeleteExamplesSerializer(serializers.Serializer[Any]):
    """Query parameters of a bulk deletion."""

    example_ids = serializers.ListField(
        child=serializers.UUIDField(), min_length=1, max_length=MAX_DELETED
    )


class ExamplesView(WorkspaceAPIView):
    required_permission = {"GET": Permission.DATASETS_READ, "*": Permission.DATASETS_WRITE}

    @extend_schema(parameters=[ExampleListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of the examples of a dataset, or of the examples with the ids."""
        params = query_params(ExampleListSerializer, request)
        selection = ExampleSelection(self.workspace_id, params)
        return Response(list_examples(selection, params))

    @extend_schema(request=request_schema(WireExample), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create one example."""
        wire = decode(request.body, WireExample)
        return Response(_create(self.workspace_id, [wire])[0])

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest) -> Response:
        """Delete the examples from the latest version; if one does not exist, none is deleted."""
        ids = query_params(DeleteExamplesSerializer, request)["example_ids"]
        services.delete_examples(workspace_id=self.workspace_id, example_ids=ids)
        return Response({"message": f"{len(set(ids))} examples deleted"})


class BulkExamplesView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(list[WireExample]), responses=list[dict[str, Any]])
    def post(self, request: ApiRequest) -> Response:
        """Create examples of one dataset in one version, and return them in the same order."""
        wires = decode(request.body, list[WireExample])
        return Response(_create(self.workspace_id, wires) if wires else [])

    @extend_schema(request=request_schema(list[WireExampleUpdate]), responses=dict)
    def patch(self, request: ApiRequest) -> Response:
        """Change examples, in one version for each dataset that has one of them."""
        wires = decode(request.body, list[WireExampleUpdate])
        count = update_by_id(self.workspace_id, wires)
        return Response({"message": f"{count} examples updated", "count": count})


class ValidateExampleView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(WireExample), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return the example as `POST /examples` would store it, or its error."""
        wire = decode(request.body, WireExample)
        return Response(_check(self.workspace_id, [wire])[0])


class ValidateExamplesView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(list[WireExample]), responses=list[dict[str, Any]])
    def post(self, request: ApiRequest) -> Response:
        """Return the examples as `POST /examples/bulk` would store them, or its error."""
        wires = decode(request.body, list[WireExample])
        return Response(_check(self.workspace_id, wires) if wires else [])


class ExampleCountView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[ExampleFilterSerializer], responses=int)
    def get(self, request: ApiRequest) -> Response:
        selection = ExampleSelection(
            self.workspace_id, query_params(ExampleFilterSerializer, request)
        )
        return Response(count_examples(selection))


class ExampleView(WorkspaceAPIView):
    required_permission = {"GET": Permission.DATASETS_READ, "*": Permission.DATASETS_WRITE}

    @extend_schema(parameters=[ExampleReadSerializer], responses=dict)
    def get(self, request: ApiRequest, example_id: UUID) -> Response:
        """Return the example in the latest version, or in the one that `as_of` names."""
        params = query_params(ExampleReadSerializer, request)
        revision = services.get_example(
            self.workspace_id,
            example_id,
            dataset_id=params.get("dataset"),
            resolve=lambda dataset: resolve_as_of(dataset, params.get("as_of")),
        )
        return Response(example_json(revision, revision.dataset.name))

    @extend_schema(request=request_schema(WireExampleUpdate), responses=dict)
    def patch(self, request: ApiRequest, example_id: UUID) -> Response:
        """Change the given fields; null leaves a field as it is."""
        services.get_example(self.workspace_id, example_id)  # 404 takes precedence over 422
        wire = decode(request.body, WireExampleUpdate)
        if wire.id not in {None, example_id}:
            raise core_errors.Invalid("`id` is the id of another example.")
        wire.id = example_id
        update_by_id(self.workspace_id, [wire])
        return Response({"message": "1 examples updated", "count": 1})

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest, example_id: UUID) -> Response:
        """Delete the example from the latest version; earlier versions have it."""
        services.delete_examples(workspace_id=self.workspace_id, example_ids=[example_id])
        return Response({"message": "Example deleted."})


def _create(workspace_id: UUID, wires: list[WireExample]) -> list[dict[str, Any]]:
    """Create examples of one dataset, and return them in the same order."""
    dataset = _common_dataset(workspace_id, wires)
    written = services.create_examples(
        dataset=dataset, examples=[NewExample(wire) for wire in wires]
    )
    rows = ExampleRevision.objects.for_workspace(workspace_id)
    rows = rows.filter(dataset=dataset, valid_from=written.as_of)
    return [example_json(row, dataset.name) for row in rows.newest_first()]


def _check(workspace_id: UUID, wires: list[WireExample]) -> list[dict[str, Any]]:
    """Return the examples as they would be stored, in the same order."""
    dataset = _common_dataset(workspace_id, wires)
    contents = services.check_examples(
        dataset=dataset, examples=[NewExample(wire) for wire in wires]
    )
    return [
        validated_json(content, wire, dataset.pk)
        for content, wire in zip(contents, wires, strict=True)
    ]


def _common_dataset(workspace_id: UUID, wires: list[WireExample]) -> Dataset:
    dataset_ids = {wire.dataset_id for wire in wires}
    dataset_id = next(iter(dataset_ids))
    if dataset_id is None or len(dataset_ids) > 1:
        raise core_errors.Invalid("Every example needs the same `dataset_id`.")
    return get_dataset(workspace_id, dataset_id)


def list_examples(selection: ExampleSelection, params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requested page, in two queries."""
    fields = fields_to_render(params["select"], only_selected=params["exclude_default_fields"])
    rows, first = order_examples(selection.rows, params), params["offset"]
    is_newest_first = params["order"] == "recent" and params["descending"] is not False
    if selection.dataset is not None and is_newest_first and not selection.is_filtered:
        start = find_page_start(selection.dataset, selection.version_at, first)
        if start is not None:
            rows, first = rows.filter(valid_from__lte=start.valid_from), start.offset
    page = slice(first, first + params["limit"])
    # The ids come from an index; only the rows of the page are read from the table.
    ids = list(rows.values_list("example_id", flat=True)[page])
    page_rows = selection.valid_rows.filter(example_id__in=ids)
    if not fields.isdisjoint(FIELDS):
        page_rows = with_embedded_content(page_rows)
    page_rows = page_rows.defer(*{*FIELDS, "metadata"} - fields)
    if selection.dataset is None:
        page_rows = page_rows.select_related("dataset")
    by_id = {row.example_id: row for row in page_rows}
    return [
        example_json(row, (selection.dataset or row.dataset).name, fields)
        for row in (by_id[example_id] for example_id in ids if example_id in by_id)
    ]


def count_examples(selection: ExampleSelection) -> int:
    """Return the number of the examples; that of the latest version is a counter."""
    if selection.dataset is None or selection.is_filtered or selection.version_at is not None:
        return selection.rows.count()
    return selection.dataset.example_count


def update_by_id(workspace_id: UUID, wires: list[WireExampleUpdate]) -> int:
    """Change the examples in the datasets that they are in; return their number."""
    ids = [wire.id for wire in wires if wire.id is not None]
    rows = ExampleRevision.objects.for_workspace(workspace_id).current()
    rows = rows.filter(example_id__in=ids, dataset__deleted_at=None)
    dataset_ids = dict(rows.values_list("example_id", "dataset_id"))
    changes: dict[UUID, list[ExampleChange]] = defaultdict(list)
    for wire in wires:
        dataset_id = dataset_ids.get(wire.id) if wire.id is not None else None
        if dataset_id is None:
            raise errors.ExampleNotFound(f"There is no example {wire.id}.")
        if wire.dataset_id not in {None, dataset_id}:
            raise core_errors.Invalid("An example cannot be moved to another dataset.")
        changes[dataset_id].append(ExampleChange(wire))
    services.update_in_datasets(workspace_id, changes)
    return len(wires)


routes = [
    path("examples", ExamplesView.as_view(), name="example-list"),
    path("examples/bulk", BulkExamplesView.as_view(), name="example-bulk"),
    path("examples/validate", ValidateExampleView.as_view(), name="example-validate"),
    path("examples/validate/bulk", ValidateExamplesView.as_view(), name="example-validate-bulk"),
    path("examples/count", ExampleCountView.as_view(), name="example-count"),
    path("examples/<uuid:example_id>", ExampleView.as_view(), name="example-read-update"),
]
