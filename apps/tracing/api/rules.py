"""Rules that act on finished runs, as far as clients read them.

What rules do (evaluators, annotation queues, datasets) is not here yet, so none can be made, and
clients that look before they leap find none. Making one is refused in words.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.permissions import Permission
from apps.tracing import errors
from apps.tracing.api.second import UpperChoiceField, page_size
from apps.tracing.api.serializers import query_params


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
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[RuleListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """The workspace's rules, of which there are none."""
        query_params(RuleListSerializer, request)
        return Response([])

    @extend_schema(request=dict, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        raise errors.NotHere("This server does not carry out rules, so it takes none.")


class RulesV2View(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[RuleListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """A page of the workspace's rules, of which there are none."""
        query_params(RuleListSerializer, request)
        return Response({"items": [], "next_cursor": None})


class RuleView(WorkspaceAPIView):
    """A rule, its logs, and what is done with it: no rule has any id."""

    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.PROJECTS_WRITE}

    def _none(self, request: ApiRequest, rule_id: UUID) -> Response:
        raise core_errors.NotFound("No such rule.")

    get = extend_schema(responses=dict)(_none)
    post = extend_schema(request=dict, responses=dict)(_none)
    patch = extend_schema(request=dict, responses=dict)(_none)
    delete = extend_schema(responses={204: None})(_none)


_RULE = "runs/rules/<uuid:rule_id>"
routes = [
    path("runs/rules", RulesView.as_view(), name="rule-list"),
    path("v2/runs/rules", RulesV2View.as_view(), name="v2-rule-list"),
    path(_RULE, RuleView.as_view(), name="rule"),
    path(f"{_RULE}/logs", RuleView.as_view(), name="rule-logs"),
    path(f"{_RULE}/logs/v2", RuleView.as_view(), name="v2-rule-logs"),
    path(f"{_RULE}/last_applied", RuleView.as_view(), name="rule-last-applied"),
    path(f"{_RULE}/trigger", RuleView.as_view(), name="rule-trigger"),
]
