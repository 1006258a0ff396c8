"""The list of automation rules, which is always empty.

Rules cannot be created yet. Clients read the list before other calls, so it must exist.
"""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.permissions import Permission
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import UpperChoiceField, page_size_field


class RuleListSerializer(serializers.Serializer[Any]):
    """Query parameters of the list of rules."""

    id = serializers.ListField(child=serializers.UUIDField(), required=False)
    session_id = serializers.UUIDField(required=False)
    project_id = serializers.UUIDField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    evaluator_id = serializers.UUIDField(required=False)
    tag_value_id = serializers.ListField(child=serializers.UUIDField(), required=False)
    name_contains = serializers.CharField(required=False)
    type = UpperChoiceField(choices=["SESSION", "PROJECT", "DATASET"], required=False)
    include_backfill_progress = serializers.BooleanField(required=False, default=False)
    cursor = serializers.CharField(required=False)
    page_size = page_size_field(default=20, most=100)


class RulesView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[RuleListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """Return the workspace's rules: an empty list."""
        query_params(RuleListSerializer, request)
        return Response([])


routes = [path("runs/rules", RulesView.as_view(), name="rule-list")]
