"""Endpoints of the few-shot index."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets.api.queries import filter_condition
from apps.datasets.api.rendering import example_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.models import TAG_LENGTH, ExampleIndex
from apps.datasets.services import search as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.text_vectors import METHOD
from apps.datasets.services.versions import LATEST
from apps.datasets.wire import decode
from apps.organizations.permissions import Permission

MAX_RESULTS = 100
_FIELDS = ("id", "dataset_id", "inputs", "outputs", "metadata")


class WireIndex(msgspec.Struct, forbid_unknown_fields=True):
    """The tag of the version to index."""

    tag: str | None = None


class WireSearch(msgspec.Struct, forbid_unknown_fields=True):
    """Inputs, and how many of the examples with similar inputs are returned."""

    inputs: dict[str, Any]
    limit: int = 5
    filter: str | None = None
    debug: bool = False


class IndexView(WorkspaceAPIView):
    required_permission = {"GET": Permission.DATASETS_READ, "*": Permission.DATASETS_WRITE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return which version is indexed; 409 if the dataset is not indexed."""
        return Response(_index_json(services.get_index(get_dataset(self.workspace_id, dataset_id))))

    @extend_schema(request=request_schema(WireIndex), responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Index the version that a tag names, by default `latest`, and follow the tag."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        tag = decode(request.body, WireIndex).tag or LATEST
        if len(tag) > TAG_LENGTH or "\x00" in tag:
            raise core_errors.Invalid(f"`tag` has at most {TAG_LENGTH} characters.")
        return Response(_index_json(services.create_index(dataset=dataset, tag=tag)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, dataset_id: UUID) -> Response:
        services.delete_index(dataset=get_dataset(self.workspace_id, dataset_id))
        return Response(status=204)


class SyncIndexView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=None, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Bring the index to the version of its tag at once; a task does so within seconds."""
        index = services.get_index(get_dataset(self.workspace_id, dataset_id))
        return Response(_index_json(services.sync_index(index)))


class SearchView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(request=request_schema(WireSearch), responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the indexed examples with the most similar inputs."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireSearch)
        if not 0 < wire.limit <= MAX_RESULTS:
            raise core_errors.Invalid(f"`limit` must be 1 to {MAX_RESULTS}.")
        matches = services.find_similar(
            dataset=dataset,
            inputs=wire.inputs,
            limit=wire.limit,
            where=filter_condition(wire.filter) if wire.filter else None,
        )
        examples = []
        for item in matches:
            example = example_json(item.revision, dataset.name, _FIELDS)
            if wire.debug:
                example["debug_info"] = {"similarity": item.similarity, "method": METHOD}
            examples.append(example)
        return Response({"examples": examples})


def _index_json(index: ExampleIndex) -> dict[str, Any]:
    return {
        "dataset_id": index.dataset_id,
        "tag": index.tag,
        "last_updated_version": index.indexed_version_at,
        "method": METHOD,
    }


routes = [
    path("datasets/<uuid:dataset_id>/index", IndexView.as_view(), name="dataset-index"),
    path("datasets/<uuid:dataset_id>/index/sync", SyncIndexView.as_view(), name="dataset-sync"),
    path("datasets/<uuid:dataset_id>/search", SearchView.as_view(), name="dataset-search"),
]
