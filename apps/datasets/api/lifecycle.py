"""Endpoints that copy datasets, and that restore deleted ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec
from django.http import StreamingHttpResponse
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.json import dumps
from apps.core.tenancy import get_or_404
from apps.datasets.api.queries import DatasetPageSerializer, query_params
from apps.datasets.api.rendering import datasets_json, example_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.models import Dataset
from apps.datasets.services.cloning import clone_examples
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.downloads import iterate_revisions
from apps.datasets.services.removal import removal_time, restore_dataset
from apps.datasets.services.versions import resolve_as_of
from apps.datasets.wire import decode, parse_splits
from apps.organizations.permissions import Permission

MAX_IDS = 10_000


class WireClone(msgspec.Struct, forbid_unknown_fields=True):
    """A copy of the examples of one dataset into another."""

    target_dataset_id: UUID
    source_dataset_id: UUID
    as_of: str | None = None
    examples: list[UUID] | None = None
    split: str | list[str] | None = None


class CloneView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(WireClone), responses=list[dict[str, Any]])
    def post(self, request: ApiRequest) -> StreamingHttpResponse:
        """Copy examples with new ids, in one version of the target, and return them.

        `as_of` is the source's version, `examples` and `split` select among its examples.
        """
        wire = decode(request.body, WireClone)
        if wire.examples is not None and len(wire.examples) > MAX_IDS:
            raise core_errors.Invalid(f"`examples` may have at most {MAX_IDS} ids.")
        source = get_dataset(self.workspace_id, wire.source_dataset_id)
        target = get_dataset(self.workspace_id, wire.target_dataset_id)
        written_at = clone_examples(
            source=source,
            target=target,
            version_at=resolve_as_of(source, wire.as_of),
            example_ids=wire.examples,
            splits=None if wire.split is None else parse_splits(wire.split),
        )
        rows = iterate_revisions(target, written_at, written_since=written_at)
        lines = (dumps(example_json(row, target.name)) for row in rows)
        # A list of any length, as clones of large datasets are.
        return StreamingHttpResponse(_json_list(lines), content_type="application/json")


def _json_list(items: Iterator[bytes]) -> Iterator[bytes]:
    yield b"["
    separator = b""
    for item in items:
        yield separator + item
        separator = b","
    yield b"]"


class DeletedDatasetsView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[DatasetPageSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """Return a page of the deleted datasets that can be restored, last deleted first."""
        params = query_params(DatasetPageSerializer, request)
        rows = Dataset.objects.for_workspace(self.workspace_id).deleted()
        rows = rows.order_by("-deleted_at", "pk")
        page = list(rows[params["offset"] : params["offset"] + params["limit"]])
        times = [
            {"deleted_at": dataset.deleted_at, "removed_at": removal_time(dataset)}
            for dataset in page
        ]
        rendered = datasets_json(self.workspace_id, page)
        return Response([row | extra for row, extra in zip(rendered, times, strict=True)])


class RestoreView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_DELETE

    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Restore a deleted dataset."""
        rows = Dataset.objects.for_workspace(self.workspace_id).deleted()
        dataset = restore_dataset(dataset=get_or_404(rows, pk=dataset_id))
        return Response(datasets_json(self.workspace_id, [dataset])[0])


routes = [
    path("datasets/clone", CloneView.as_view(), name="dataset-clone"),
    path("datasets/deleted", DeletedDatasetsView.as_view(), name="dataset-deleted-list"),
    path("datasets/<uuid:dataset_id>/restore", RestoreView.as_view(), name="dataset-restore"),
]
