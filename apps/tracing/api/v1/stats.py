"""Statistics of runs, in total or by group."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery
from apps.trace_store.aggregation import GroupAttribute, GroupBy
from apps.tracing.api.run_queries import REQUIRED_FILTERS, run_query
from apps.tracing.api.v1.serializers import RunFilterSerializer
from apps.tracing.models import Project
from apps.tracing.services import statistics

WIRE_ATTRIBUTES = ("name", "run_type", "tag", "metadata", "status", "model")


class GroupBySerializer(serializers.Serializer[Any]):
    """The grouping; `path` is a metadata key."""

    attribute = serializers.ChoiceField(choices=WIRE_ATTRIBUTES)
    path = serializers.CharField(required=False, allow_null=True, max_length=1000)
    max_groups = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=1000
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["attribute"] == GroupAttribute.METADATA and not attrs.get("path"):
            raise serializers.ValidationError({"path": "Must be a metadata key."})
        return attrs


def build_group_by(params: dict[str, Any] | None) -> GroupBy | None:
    if not params:
        return None
    attribute = GroupAttribute(params["attribute"])
    return GroupBy(attribute, params.get("path") or "", params.get("max_groups") or 5)


class StatsSerializer(RunFilterSerializer):
    """A filter of runs and the selected statistics."""

    group_by = GroupBySerializer(required=False, allow_null=True)
    groups = serializers.ListField(
        child=serializers.CharField(allow_null=True, allow_blank=True, max_length=1000),
        required=False,
        allow_null=True,
        max_length=1000,
    )
    select = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    include_details = serializers.BooleanField(required=False, allow_null=True, default=None)

    def validate_select(self, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if name not in statistics.SELECTABLE:
                raise serializers.ValidationError(f"{name!r:.60} is not a statistic of runs.")
        return value


class StatsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=StatsSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return counts, quantiles, tokens, costs, feedback and facets of the matching runs."""
        params = validate(StatsSerializer, request.data)
        query = self._query(params)
        group_by = build_group_by(params.get("group_by"))
        select, details = params.get("select"), bool(params.get("include_details"))
        if group_by is None:
            return Response(
                statistics.run_stats(self.workspace_id, query, select=select, with_details=details)
            )
        groups = [name or "" for name in params["groups"]] if params.get("groups") else None
        return Response(
            statistics.grouped_stats(
                self.workspace_id,
                query,
                group_by,
                groups=groups,
                select=select,
                with_details=details,
            )
        )

    def _query(self, params: dict[str, Any]) -> RunQuery:
        """Build the query; without a filter it covers all projects."""
        if all(params.get(name) is None for name in REQUIRED_FILTERS):
            projects = Project.objects.for_workspace(self.workspace_id).present()
            params = params | {"session": list(projects.values_list("pk", flat=True))}
        return run_query(self.workspace_id, params)


routes = [path("runs/stats", StatsView.as_view(), name="run-stats")]
"""The route must precede `runs/<id>`."""
