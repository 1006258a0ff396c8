"""Links to datasets, and the public routes that they open without authentication."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, OpenAPIView, WorkspaceAPIView
from apps.datasets.api.examples import count_examples, list_examples
from apps.datasets.api.queries import (
    ExampleFilterSerializer,
    ExampleListSerializer,
    ExampleSelection,
    query_params,
)
from apps.datasets.api.rendering import shared_dataset_json, without_sources
from apps.datasets.api.request_schema import request_schema
from apps.datasets.models import DatasetShare
from apps.datasets.services import sharing as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.wire import decode
from apps.organizations.permissions import Permission


class WireShare(msgspec.Struct, forbid_unknown_fields=True):
    """The dataset of the path and, if the client chooses it, the token of the link."""

    dataset_id: UUID | None = None
    share_token: UUID | None = None


class ShareSerializer(serializers.Serializer[Any]):
    """Query parameters of a link."""

    share_projects = serializers.BooleanField(required=False)


class DatasetShareView(WorkspaceAPIView):
    required_permission = {"GET": Permission.DATASETS_READ, "*": Permission.DATASETS_SHARE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the link; 404 if the dataset is not shared."""
        share = services.find_share(get_dataset(self.workspace_id, dataset_id))
        return Response(_share_json(share))

    @extend_schema(request=request_schema(WireShare), parameters=[ShareSerializer], responses=dict)
    def put(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Share the dataset's latest version; a repeated call keeps the link.

        `share_projects` also shows the experiments on the dataset, or hides them again.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireShare)
        if wire.dataset_id not in {None, dataset_id}:
            raise core_errors.Invalid("`dataset_id` is the id of another dataset than the path's.")
        with_experiments = query_params(ShareSerializer, request).get("share_projects")
        if with_experiments:
            request.auth.require(Permission.EXPERIMENTS_READ)
        share = services.share_dataset(
            dataset=dataset, token=wire.share_token, with_experiments=with_experiments
        )
        return Response(_share_json(share))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, dataset_id: UUID) -> Response:
        services.unshare_dataset(dataset=get_dataset(self.workspace_id, dataset_id))
        return Response(status=204)


def _share_json(share: DatasetShare) -> dict[str, Any]:
    return {
        "dataset_id": share.dataset_id,
        "share_token": share.token,
        "share_projects": share.with_experiments,
    }


class SharedDatasetView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        return Response(shared_dataset_json(services.resolve_link(token)))


class SharedExampleFilterSerializer(ExampleFilterSerializer):
    dataset = None  # type: ignore[assignment]  # the link's


class SharedExampleListSerializer(ExampleListSerializer):
    dataset = None  # type: ignore[assignment]  # the link's


class SharedExamplesView(OpenAPIView):
    @extend_schema(parameters=[SharedExampleListSerializer], responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        """Return a page of the examples, without the runs that they come from."""
        dataset = services.resolve_link(token)
        params = query_params(SharedExampleListSerializer, request)
        selection = ExampleSelection(dataset.workspace_id, params | {"dataset": dataset.pk})
        return Response([without_sources(item) for item in list_examples(selection, params)])


class SharedExampleCountView(OpenAPIView):
    @extend_schema(parameters=[SharedExampleFilterSerializer], responses=int)
    def get(self, request: Request, token: UUID) -> Response:
        dataset = services.resolve_link(token)
        params = query_params(SharedExampleFilterSerializer, request)
        selection = ExampleSelection(dataset.workspace_id, params | {"dataset": dataset.pk})
        return Response(count_examples(selection))


routes = [
    path("datasets/<uuid:dataset_id>/share", DatasetShareView.as_view(), name="dataset-share"),
    path("public/<uuid:token>/datasets", SharedDatasetView.as_view(), name="public-dataset"),
    path("public/<uuid:token>/examples", SharedExamplesView.as_view(), name="public-examples"),
    path(
        "public/<uuid:token>/examples/count",
        SharedExampleCountView.as_view(),
        name="public-example-count",
    ),
]
