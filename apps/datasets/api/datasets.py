"""Endpoints of datasets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets import errors
from apps.datasets.api.dataset_bodies import dataset_changes, dataset_fields
from apps.datasets.api.queries import (
    DatasetListSerializer,
    DatasetListV2Serializer,
    filter_datasets,
    query_params,
)
from apps.datasets.api.rendering import datasets_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.dataset_order import after_cursor, encode_cursor, sort_datasets
from apps.datasets.models import Dataset
from apps.datasets.services import datasets as services
from apps.datasets.services.examples import ExampleChange, update_examples
from apps.datasets.wire import WireDataset, WireDatasetChanges
from apps.organizations.permissions import Permission

MAX_DELETED = 100


class DeleteDatasetsSerializer(serializers.Serializer[Any]):
    """Query parameters of a bulk deletion."""

    dataset_ids = serializers.ListField(child=serializers.UUIDField(), max_length=MAX_DELETED)


class DatasetsView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.DATASETS_READ,
        "DELETE": Permission.DATASETS_DELETE,
        "*": Permission.DATASETS_WRITE,
    }

    @extend_schema(parameters=[DatasetListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of datasets; `X-Pagination-Total` is the number of matches."""
        params = query_params(DatasetListSerializer, request)
        matches = filter_datasets(self.workspace_id, params)
        descending = params["sort_by_desc"]
        rows = sort_datasets(self.workspace_id, matches, params["sort_by"], descending=descending)
        page = list(rows[params["offset"] : params["offset"] + params["limit"]])
        return Response(
            datasets_json(self.workspace_id, page, params["exclude"]),
            headers={"X-Pagination-Total": str(matches.count())},
        )

    @extend_schema(request=request_schema(WireDataset), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create an empty dataset."""
        fields = dataset_fields(request.body)
        if fields.get("tag_value_ids"):
            request.auth.require(Permission.TAGS_WRITE)
        dataset = services.create_dataset(workspace_id=self.workspace_id, **fields)
        return Response(datasets_json(self.workspace_id, [dataset])[0])

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest) -> Response:
        """Delete the datasets; if one does not exist, none is deleted."""
        ids = query_params(DeleteDatasetsSerializer, request)["dataset_ids"]
        rows = Dataset.objects.for_workspace(self.workspace_id).present().filter(pk__in=ids)
        datasets = list(rows.order_by("pk"))
        if len(datasets) < len(set(ids)):
            raise errors.DatasetNotFound
        with transaction.atomic():
            for dataset in datasets:
                services.delete_dataset(dataset=dataset)
        return Response({"message": f"{len(datasets)} datasets deleted"})


class DatasetsV2View(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[DatasetListV2Serializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of datasets, and the cursor of the next page or null."""
        params = query_params(DatasetListV2Serializer, request)
        sort_by, descending = params["sort_by"], params["sort_order"] == "desc"
        matches = filter_datasets(self.workspace_id, params)
        rows = sort_datasets(self.workspace_id, matches, sort_by, descending=descending)
        if "cursor" in params:
            rows = rows.filter(after_cursor(params["cursor"], sort_by, descending=descending))
        size = params["page_size"]
        candidates = list(rows[: size + 1])
        page = candidates[:size]
        has_more = len(candidates) > size
        return Response(
            {
                "items": datasets_json(self.workspace_id, page, params["exclude"]),
                "next_cursor": encode_cursor(page[-1]) if has_more else None,
            }
        )


class DatasetView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.DATASETS_READ,
        "DELETE": Permission.DATASETS_DELETE,
        "*": Permission.DATASETS_WRITE,
    }

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        dataset = services.get_dataset(self.workspace_id, dataset_id)
        return Response(datasets_json(self.workspace_id, [dataset])[0])

    @extend_schema(request=request_schema(WireDatasetChanges), responses=dict)
    def patch(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Change the given fields, and with `patch_examples` examples in the same transaction."""
        dataset = services.get_dataset(self.workspace_id, dataset_id)
        changes, patches = dataset_changes(request.body)
        with transaction.atomic():
            dataset = services.update_dataset(dataset=dataset, changes=changes)
            if patches:
                update_examples(dataset=dataset, changes=[ExampleChange(p) for p in patches])
        dataset = services.get_dataset(self.workspace_id, dataset_id)
        return Response(datasets_json(self.workspace_id, [dataset])[0])

    @extend_schema(responses={200: dict})
    def delete(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Delete the dataset; it can be restored for some days."""
        services.delete_dataset(dataset=services.get_dataset(self.workspace_id, dataset_id))
        return Response({"message": "Dataset deleted."})


routes = [
    path("datasets", DatasetsView.as_view(), name="dataset-list-api"),
    path("v2/datasets", DatasetsV2View.as_view(), name="v2-dataset-list"),
    path("datasets/<uuid:dataset_id>", DatasetView.as_view(), name="dataset-read-update"),
]
