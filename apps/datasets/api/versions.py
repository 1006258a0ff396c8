"""Endpoints of versions, tags, differences and splits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Q
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets.api.queries import DatasetPageSerializer, query_params
from apps.datasets.api.rendering import version_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.models import Dataset, DatasetTag, DatasetVersion, ExampleRevision
from apps.datasets.services import tags as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.diff import diff_versions
from apps.datasets.services.versions import find_version, resolve_as_of, versions_of
from apps.datasets.wire import decode, parse_time_field
from apps.organizations.permissions import Permission

MAX_IDS = 10_000


class VersionListSerializer(DatasetPageSerializer):
    search = serializers.CharField(required=False)
    example = serializers.UUIDField(required=False)


class VersionSerializer(serializers.Serializer[Any]):
    as_of = serializers.CharField(required=False)
    tag = serializers.CharField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError("Set either `as_of` or `tag`.")
        return attrs


class DifferenceSerializer(serializers.Serializer[Any]):
    from_version = serializers.CharField()
    to_version = serializers.CharField()


class AsOfSerializer(serializers.Serializer[Any]):
    as_of = serializers.CharField(required=False)


class WireTag(msgspec.Struct, forbid_unknown_fields=True):
    """A tag and the exact time of the version that gets it."""

    as_of: str
    tag: str


class WireSplit(msgspec.Struct, forbid_unknown_fields=True):
    """Examples that are added to a split or removed from it."""

    split_name: str
    examples: list[UUID]
    remove: bool | None = None


class VersionsView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[VersionListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return a page of the versions, newest first.

        `search` selects those with a tag that contains the text, `example` those that wrote or
        deleted the example.
        """
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(VersionListSerializer, request)
        versions = versions_of(dataset)
        if "search" in params:
            versions = versions.filter(_has_tag(dataset, params["search"]))
        if "example" in params:
            versions = versions.filter(as_of__in=_times_of_example(dataset, params["example"]))
        page = list(versions[params["offset"] : params["offset"] + params["limit"]])
        return Response(_versions_json(dataset, page))


def _has_tag(dataset: Dataset, text: str) -> Q:
    tags = DatasetTag.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    condition = Q(as_of__in=tags.filter(name__icontains=text).values("as_of"))
    if text.lower() in "latest":
        condition |= Q(as_of=dataset.latest_version_at)
    return condition


def _times_of_example(dataset: Dataset, example_id: UUID) -> set[Any]:
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    times = rows.filter(dataset=dataset, example_id=example_id)
    return {time for pair in times.values_list("valid_from", "valid_to") for time in pair} - {None}


def _versions_json(dataset: Dataset, versions: list[DatasetVersion]) -> list[dict[str, Any]]:
    tags = services.tags_of_versions(dataset, versions)
    return [version_json(version, tags.get(version.as_of, ())) for version in versions]


class VersionView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[VersionSerializer], responses=dict)
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the version with the tag, or the newest one at a time."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(VersionSerializer, request)
        if "tag" in params:
            version = find_version(dataset, tag=params["tag"])
        else:
            version = find_version(dataset, as_of=resolve_as_of(dataset, params["as_of"]))
        return Response(_versions_json(dataset, [version])[0])


class TagsView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=request_schema(WireTag), responses=dict)
    def put(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Move the tag to a version, or create it there."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireTag)
        as_of = parse_time_field(wire.as_of, "as_of")
        if as_of is None:
            raise core_errors.Invalid("`as_of` is required.")
        version = services.move_tag(dataset=dataset, name=wire.tag, as_of=as_of)
        return Response(_versions_json(dataset, [version])[0])


class DifferenceView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[DifferenceSerializer], responses=dict)
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the ids of examples that differ between two versions, named by time or tag."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(DifferenceSerializer, request)
        times = [
            resolve_as_of(dataset, params[name]) or dataset.latest_version_at
            for name in ("from_version", "to_version")
        ]
        difference = diff_versions(dataset, *times)
        return Response(
            {
                "examples_added": difference.added,
                "examples_modified": difference.modified,
                "examples_removed": difference.removed,
            }
        )


class SplitsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.DATASETS_READ, "*": Permission.DATASETS_WRITE}

    @extend_schema(parameters=[AsOfSerializer], responses=list[str])
    def get(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Return the names of the splits in a version."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(AsOfSerializer, request)
        version_at = resolve_as_of(dataset, params.get("as_of"))
        return Response(services.list_splits(dataset, version_at))

    @extend_schema(request=request_schema(WireSplit), responses=list[str])
    def put(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Add examples to a split or remove them; return the names of all splits."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        wire = decode(request.body, WireSplit)
        if len(wire.examples) > MAX_IDS:
            raise core_errors.Invalid(f"`examples` may have at most {MAX_IDS} ids.")
        services.change_split(
            dataset=dataset,
            name=wire.split_name,
            example_ids=wire.examples,
            remove=bool(wire.remove),
        )
        return Response(services.list_splits(dataset, None))


routes = [
    path("datasets/<uuid:dataset_id>/versions", VersionsView.as_view(), name="dataset-versions"),
    path("datasets/<uuid:dataset_id>/version", VersionView.as_view(), name="dataset-version"),
    path("datasets/<uuid:dataset_id>/versions/diff", DifferenceView.as_view(), name="dataset-diff"),
    path("datasets/<uuid:dataset_id>/tags", TagsView.as_view(), name="dataset-tags"),
    path("datasets/<uuid:dataset_id>/splits", SplitsView.as_view(), name="dataset-splits"),
]
