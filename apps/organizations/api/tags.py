"""Tags of a workspace."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.organizations import hooks
from apps.organizations.api.rendering import tag_key_json, tag_value_json, tagging_json
from apps.organizations.api.request_helpers import paginated_response, query_params
from apps.organizations.models import ResourceType, Tagging, TagKey, TagValue
from apps.organizations.permissions import Permission
from apps.organizations.services import tags


class TagKeySerializer(serializers.Serializer[Any]):
    key = serializers.CharField(max_length=100)
    description = serializers.CharField(
        max_length=500, required=False, allow_blank=True, allow_null=True
    )


class TagValueSerializer(serializers.Serializer[Any]):
    value = serializers.CharField(max_length=100)
    description = serializers.CharField(
        max_length=500, required=False, allow_blank=True, allow_null=True
    )


class TaggingSerializer(serializers.Serializer[Any]):
    tag_value_id = serializers.UUIDField()
    resource_type = serializers.ChoiceField(choices=ResourceType.choices)
    resource_id = serializers.UUIDField()


class ResourceSerializer(serializers.Serializer[Any]):
    resource_type = serializers.ChoiceField(choices=ResourceType.choices)
    resource_id = serializers.UUIDField()


class ResourcesSerializer(serializers.Serializer[Any]):
    resource_type = serializers.ChoiceField(choices=ResourceType.choices)
    resource_ids = serializers.ListField(child=serializers.UUIDField(), max_length=100)


class TagsBase(WorkspaceAPIView):
    required_permission = {"GET": Permission.TAGS_READ, "*": Permission.TAGS_WRITE}

    def get_key(self, tag_key_id: UUID) -> TagKey:
        return get_or_404(TagKey.objects.for_workspace(self.workspace_id), pk=tag_key_id)

    def get_value(self, tag_key_id: UUID, tag_value_id: UUID) -> TagValue:
        rows = TagValue.objects.for_workspace(self.workspace_id).select_related("tag_key")
        return get_or_404(rows, pk=tag_value_id, tag_key_id=tag_key_id)

    def validate_changes(self, kind: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        body = kind(data=self.request.data, partial=True)
        body.is_valid(raise_exception=True)
        return {name: value for name, value in body.validated_data.items() if value is not None}


class TagKeysView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = TagKey.objects.for_workspace(self.workspace_id).order_by("key")
        return paginated_response(request, rows, tag_key_json)

    @extend_schema(request=TagKeySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        body = validate(TagKeySerializer, request.data)
        key = tags.create_key(
            workspace_id=self.workspace_id,
            key=body["key"],
            description=body.get("description") or "",
        )
        return Response(tag_key_json(key))


class TagKeyView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, tag_key_id: UUID) -> Response:
        return Response(tag_key_json(self.get_key(tag_key_id)))

    @extend_schema(request=TagKeySerializer, responses=dict)
    def patch(self, request: ApiRequest, tag_key_id: UUID) -> Response:
        row = self.get_key(tag_key_id)
        return Response(
            tag_key_json(tags.update_key(row=row, changes=self.validate_changes(TagKeySerializer)))
        )

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, tag_key_id: UUID) -> Response:
        tags.delete_key(row=self.get_key(tag_key_id))
        return Response(status=204)


class TagValuesView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, tag_key_id: UUID) -> Response:
        rows = TagValue.objects.for_workspace(self.workspace_id)
        return paginated_response(
            request, rows.filter(tag_key=self.get_key(tag_key_id)).order_by("value"), tag_value_json
        )

    @extend_schema(request=TagValueSerializer, responses=dict)
    def post(self, request: ApiRequest, tag_key_id: UUID) -> Response:
        key = self.get_key(tag_key_id)
        body = validate(TagValueSerializer, request.data)
        value = tags.create_value(
            key=key, value=body["value"], description=body.get("description") or ""
        )
        return Response(tag_value_json(value))


class TagValueView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, tag_key_id: UUID, tag_value_id: UUID) -> Response:
        return Response(tag_value_json(self.get_value(tag_key_id, tag_value_id)))

    @extend_schema(request=TagValueSerializer, responses=dict)
    def patch(self, request: ApiRequest, tag_key_id: UUID, tag_value_id: UUID) -> Response:
        row = self.get_value(tag_key_id, tag_value_id)
        changed = tags.update_value(row=row, changes=self.validate_changes(TagValueSerializer))
        return Response(tag_value_json(changed))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, tag_key_id: UUID, tag_value_id: UUID) -> Response:
        tags.delete_value(row=self.get_value(tag_key_id, tag_value_id))
        return Response(status=204)


class TaggingsView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List taggings, optionally of one `tag_value_id`."""
        rows = Tagging.objects.for_workspace(self.workspace_id).order_by("-created_at", "-pk")
        field = serializers.UUIDField()
        if value := query_params(request).get("tag_value_id"):
            rows = rows.filter(tag_value_id=field.run_validation(value))
        return paginated_response(request, rows, tagging_json)

    @extend_schema(request=TaggingSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        body = validate(TaggingSerializer, request.data)
        rows = TagValue.objects.for_workspace(self.workspace_id)
        tagging = tags.tag(
            value=get_or_404(rows, pk=body["tag_value_id"]),
            resource_type=body["resource_type"],
            resource_id=body["resource_id"],
        )
        return Response(tagging_json(tagging))


class TaggingView(TagsBase):
    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, tagging_id: UUID) -> Response:
        rows = Tagging.objects.for_workspace(self.workspace_id)
        tags.untag(tagging=get_or_404(rows, pk=tagging_id))
        return Response(status=204)


class TagsView(TagsBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List all keys with their values."""
        values: dict[UUID, list[TagValue]] = defaultdict(list)
        for value in TagValue.objects.for_workspace(self.workspace_id).order_by("value"):
            values[value.tag_key_id].append(value)
        rows = TagKey.objects.for_workspace(self.workspace_id).order_by("key")
        return Response([tag_key_json(key, values[key.pk]) for key in rows])


class ResourceTagsView(TagsBase):
    @extend_schema(parameters=[ResourceSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List the tags of a resource."""
        query = validate(ResourceSerializer, query_params(request))
        return Response(self.tags_json(query["resource_type"], [query["resource_id"]]))

    def tags_json(self, resource_type: str, resource_ids: list[UUID]) -> list[dict[str, Any]]:
        names = hooks.resource_names(resource_type, self.workspace_id, resource_ids)
        return [
            tag_key_json(tagging.tag_value.tag_key)
            | {
                "tagging_id": tagging.pk,
                "resource_id": tagging.resource_id,
                "resource_name": names[tagging.resource_id],
                "value": tag_value_json(tagging.tag_value),
            }
            for tagging in tags.list_taggings(self.workspace_id, resource_type, resource_ids)
            if tagging.resource_id in names
        ]


class ResourcesTagsView(ResourceTagsView):
    required_permission = {"POST": Permission.TAGS_READ, "*": Permission.TAGS_WRITE}
    http_method_names = ["post", "options"]

    @extend_schema(request=ResourcesSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """List the tags of many resources of one type, by resource id."""
        body = validate(ResourcesSerializer, request.data)
        tags_by_id: dict[str, list[dict[str, Any]]] = {str(pk): [] for pk in body["resource_ids"]}
        for tag in self.tags_json(body["resource_type"], body["resource_ids"]):
            tags_by_id[str(tag["resource_id"])].append(tag)
        return Response(tags_by_id)


_WORKSPACE = "workspaces/current"
_KEY = f"{_WORKSPACE}/tag-keys/<uuid:tag_key_id>"
routes = [
    path(f"{_WORKSPACE}/tag-keys", TagKeysView.as_view(), name="tag-keys"),
    path(_KEY, TagKeyView.as_view(), name="tag-key"),
    path(f"{_KEY}/tag-values", TagValuesView.as_view(), name="tag-values"),
    path(f"{_KEY}/tag-values/<uuid:tag_value_id>", TagValueView.as_view(), name="tag-value"),
    path(f"{_WORKSPACE}/taggings", TaggingsView.as_view(), name="taggings"),
    path(f"{_WORKSPACE}/taggings/<uuid:tagging_id>", TaggingView.as_view(), name="tagging"),
    path(f"{_WORKSPACE}/tags", TagsView.as_view(), name="tags"),
    path(f"{_WORKSPACE}/tags/resource", ResourceTagsView.as_view(), name="resource-tags"),
    path(f"{_WORKSPACE}/tags/resources", ResourcesTagsView.as_view(), name="resources-tags"),
]
