"""Endpoints of feedback configs. A config states what the scores of a key mean."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.drf import StorableJSONField
from apps.feedback.api.queries import FeedbackPageSerializer, ManyField, query_params
from apps.feedback.api.rendering import config_json
from apps.feedback.models import KEY_LENGTH, FeedbackConfig
from apps.feedback.services import configs as services
from apps.organizations.permissions import Permission


class ConfigListSerializer(FeedbackPageSerializer):
    key = ManyField(serializers.CharField())
    name_contains = serializers.CharField(required=False, max_length=KEY_LENGTH)
    is_enforced = serializers.BooleanField(required=False, allow_null=True, default=None)


class CreateConfigSerializer(serializers.Serializer[Any]):
    feedback_key = serializers.CharField(max_length=KEY_LENGTH)
    feedback_config = StorableJSONField()
    is_lower_score_better = serializers.BooleanField(required=False, allow_null=True, default=None)
    is_enforced = serializers.BooleanField(required=False, default=False)


class ChangeConfigSerializer(serializers.Serializer[Any]):
    """The key or id of a config, and the changes to it."""

    id = serializers.UUIDField(required=False, allow_null=True)
    feedback_key = serializers.CharField(max_length=KEY_LENGTH, required=False)
    feedback_config = StorableJSONField(required=False, allow_null=True)
    add_categories = serializers.ListField(required=False, allow_null=True)
    remove_categories = serializers.ListField(
        child=serializers.FloatField(), required=False, allow_null=True
    )
    is_lower_score_better = serializers.BooleanField(required=False, allow_null=True, default=None)


class ConfigsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.FEEDBACK_READ, "*": Permission.FEEDBACK_WRITE}

    @extend_schema(parameters=[ConfigListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of configs, sorted by key."""
        query = ConfigListSerializer(data=query_params(request, ("key",)))
        query.is_valid(raise_exception=True)
        params: dict[str, Any] = query.validated_data
        rows = FeedbackConfig.objects.for_workspace(self.workspace_id)
        if "key" in params:
            rows = rows.filter(key__in=params["key"])
        if "name_contains" in params:
            rows = rows.filter(key__icontains=params["name_contains"])
        if params["is_enforced"] is not None:
            rows = rows.filter(is_enforced=params["is_enforced"])
        return Response([config_json(item) for item in rows.order_by("key")[query.page]])

    @extend_schema(request=CreateConfigSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a config. A repeated request returns it; a different config is rejected."""
        body = CreateConfigSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        params: dict[str, Any] = body.validated_data
        if params["is_enforced"]:
            request.auth.require(Permission.WORKSPACE_MANAGE)
        config = services.create_config(
            workspace_id=self.workspace_id,
            key=params["feedback_key"],
            config=services.parse_config(params["feedback_config"]),
            is_lower_score_better=params["is_lower_score_better"],
            is_enforced=params["is_enforced"],
        )
        return Response(config_json(config))

    @extend_schema(request=ChangeConfigSerializer, responses=dict)
    def patch(self, request: ApiRequest) -> Response:
        body = ChangeConfigSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        params: dict[str, Any] = body.validated_data
        config = services.change_config(
            workspace_id=self.workspace_id, lookup=_parse_lookup(params), changes=params
        )
        return Response(config_json(config))

    @extend_schema(parameters=[ChangeConfigSerializer], responses={204: None})
    def delete(self, request: ApiRequest) -> Response:
        """Delete the config; existing feedback stays."""
        query = ChangeConfigSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        lookup = _parse_lookup(query.validated_data)
        services.delete_config(workspace_id=self.workspace_id, lookup=lookup)
        return Response(status=204)


def _parse_lookup(params: dict[str, Any]) -> dict[str, Any]:
    candidates = {"pk": params.get("id"), "key": params.get("feedback_key")}
    lookup = {name: value for name, value in candidates.items() if value is not None}
    if not lookup:
        raise core_errors.Invalid("Set `feedback_key` or `id` to select the config.")
    return lookup


routes = [path("feedback-configs", ConfigsView.as_view(), name="feedback-config-list")]
