"""Runs grouped by thread."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.feedback.services import score_stats
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import ThreadSummary
from apps.trace_store.filters import quote
from apps.trace_store.metrics import Measure
from apps.tracing.api.run_queries import parse_filters, parse_time
from apps.tracing.services import statistics

THREAD_KEYS = '["session_id", "conversation_id", "thread_id"]'


class GroupSerializer(serializers.Serializer[Any]):
    """A filter of turns, and a page of their threads."""

    session_id = serializers.UUIDField()
    group_by = serializers.ChoiceField(choices=["conversation"], default="conversation")
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    trace_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    tree_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    start_time = serializers.DateTimeField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    offset = serializers.IntegerField(required=False, min_value=0, max_value=1_000_000, default=0)
    limit = serializers.IntegerField(required=False, min_value=1, default=20)


class GroupsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=GroupSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return a page of threads by newest turn, and the total."""
        params = validate(GroupSerializer, request.data)
        page = run_store.query_threads(
            self.workspace_id,
            _run_query(params),
            offset=params["offset"],
            limit=min(params["limit"], 100),
        )
        scores = score_stats.by_thread(
            self.workspace_id, params["session_id"], [row.thread_key for row in page.threads]
        )
        groups = [
            _group_json(row) | {"feedback_stats": scores.get(row.thread_key)}
            for row in page.threads
        ]
        return Response({"groups": groups, "total": page.total})


class GroupStatsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=GroupSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return statistics of all matching turns, and the number of threads."""
        query = _run_query(validate(GroupSerializer, request.data))
        page = run_store.query_threads(self.workspace_id, query, offset=0, limit=1)
        stats = statistics.turn_stats(self.workspace_id, query)
        return Response(stats | {"group_count": page.total})


def _run_query(params: dict[str, Any]) -> RunQuery:
    return RunQuery(
        project_ids=[params["session_id"]],
        is_root=True,
        started_from=parse_time(params.get("start_time")),
        started_until=parse_time(params.get("end_time")),
        where=parse_filters(params.get("filter")),
        where_root=parse_filters(params.get("trace_filter")),
        where_any=parse_filters(params.get("tree_filter")),
    )


def _group_json(row: ThreadSummary) -> dict[str, Any]:
    metrics = row.metrics
    key = quote(row.thread_key)
    return {
        "group_key": row.thread_key,
        "filter": f"and(in(metadata_key, {THREAD_KEYS}), eq(metadata_value, {key}))",
        "session_id": row.project_id,
        "count": metrics.runs,
        "total_tokens": metrics.total(Measure.TOTAL_TOKENS),
        "prompt_tokens": metrics.total(Measure.PROMPT_TOKENS),
        "completion_tokens": metrics.total(Measure.COMPLETION_TOKENS),
        "total_cost": statistics.format_cost(metrics.total(Measure.TOTAL_COST)),
        "prompt_cost": statistics.format_cost(metrics.total(Measure.PROMPT_COST)),
        "completion_cost": statistics.format_cost(metrics.total(Measure.COMPLETION_COST)),
        "min_start_time": row.first_start,
        "max_start_time": row.last_start,
        "latency_p50": metrics.quantile(Measure.LATENCY, 0.5),
        "latency_p99": metrics.quantile(Measure.LATENCY, 0.99),
        "first_trace_id": row.first_trace_id,
        "last_trace_id": row.last_trace_id,
        "first_inputs": row.first_inputs,
        "last_outputs": row.last_outputs,
        "last_error": row.last_error,
        "num_errored_turns": metrics.errors,
    }


routes = [
    path("runs/group", GroupsView.as_view(), name="run-groups"),
    path("runs/group/stats", GroupStatsView.as_view(), name="run-group-stats"),
]
