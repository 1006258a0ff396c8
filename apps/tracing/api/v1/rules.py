"""Rules that act on finished runs, as far as they can be read without an evaluator.

Nothing here makes a rule yet, so nobody has one. The list is there because clients look into it
before they do anything else; what makes, changes and runs rules comes with what they do.
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
from apps.tracing.api.v2.base import UpperChoiceField, page_size


class RuleListSerializer(serializers.Serializer[Any]):
    """The query string of the list of rules."""

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
    page_size = page_size(default=20, most=100)


class RulesView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[RuleListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """The workspace's rules, of which there are none."""
        query_params(RuleListSerializer, request)
        return Response([])


routes = [path("runs/rules", RulesView.as_view(), name="rule-list")]
