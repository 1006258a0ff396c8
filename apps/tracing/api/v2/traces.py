"""Reading traces, v2 API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.organizations.permissions import Permission
from apps.trace_store import RunDetail, RunQuery, run_store
from apps.tracing import errors
from apps.tracing.api.run_queries import parse_filters, parse_time
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import (
    FeedbackTimesSerializer,
    V2PageAPIView,
    build_selection_field,
    page_size_field,
    parse_filter_fields,
    time_window,
)
from apps.tracing.api.v2.rendering import SELECTABLE, as_float, payloads_for, runs_json

AGGREGATE_FIELDS = ("TOTAL_TOKENS", "TOTAL_COST", "FIRST_TOKEN_TIME")
"""Fields that describe the whole trace rather than its root run."""
_MAX_TRACE_PAGE_SIZE = 1000


class TracesQuerySerializer(FeedbackTimesSerializer):
    """A filter of traces and the selected fields."""

    project_id = serializers.UUIDField()
    trace_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True
    )
    page_size = page_size_field(default=20, maximum=100)
    selects = build_selection_field(SELECTABLE)


class TraceRunsSerializer(serializers.Serializer[Any]):
    """Query parameters of a trace's runs."""

    project_id = serializers.UUIDField(required=False)
    filter = serializers.CharField(required=False)
    min_start_time = serializers.DateTimeField(required=False)
    max_start_time = serializers.DateTimeField(required=False)
    selects = build_selection_field(SELECTABLE)


class TracesQueryView(V2PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=TracesQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return a page of traces, newest first; by default those of the last day."""
        params = validate(TracesQuerySerializer, request.data)
        selected = params.get("selects") or []
        begin, end = time_window(params, is_open=bool(params.get("trace_ids")))
        project = self.project(params["project_id"])
        where, where_any = parse_filter_fields(params, "trace_filter", "tree_filter")
        query = RunQuery(
            project_ids=[project.pk],
            run_ids=params.get("trace_ids") or None,  # a trace's id is the id of its root run
            is_root=True,
            started_from=begin,
            started_until=end,
            where=where,
            where_any=where_any,
        )
        page = run_store.query(
            self.workspace_id,
            query,
            limit=params["page_size"] or 20,
            cursor=params.get("cursor") or None,
            payloads=payloads_for(selected),
        )
        items = _traces_json(self.workspace_id, page.runs, selected)
        return Response({"items": items, "next_cursor": page.next_cursor})


class TraceRunsView(V2PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[TraceRunsSerializer], responses=dict)
    def get(self, request: ApiRequest, trace_id: UUID) -> Response:
        """Return all runs of the trace in depth-first order."""
        params = query_params(TraceRunsSerializer, request)
        project = self.project(params.get("project_id"))
        selected = params.get("selects") or []
        whole_trace = RunQuery(project_ids=[project.pk], trace_id=trace_id)
        query = RunQuery(
            project_ids=[project.pk],
            trace_id=trace_id,
            started_from=parse_time(params.get("min_start_time")),
            started_until=parse_time(params.get("max_start_time")),
            where=parse_filters(params.get("filter")),
        )
        runs = _read_all(self.workspace_id, query)
        if not runs and not run_store.query(self.workspace_id, whole_trace, limit=1).runs:
            raise errors.RunNotFound("No such trace.")
        runs.sort(key=lambda run: run.row.dotted_order)
        loaded = run_store.load_payloads(runs, payloads_for(selected))
        return Response({"items": runs_json(self.workspace_id, loaded, selected)})


def _read_all(workspace_id: UUID, query: RunQuery) -> list[RunDetail]:
    results: list[RunDetail] = []
    cursor = None
    while True:
        page = run_store.query(workspace_id, query, limit=_MAX_TRACE_PAGE_SIZE, cursor=cursor)
        results += page.runs
        cursor = page.next_cursor
        if cursor is None:
            return results


def _traces_json(
    workspace_id: UUID, roots: Sequence[RunDetail], selected: Sequence[str]
) -> list[dict[str, Any]]:
    root_fields = [name for name in selected if name not in AGGREGATE_FIELDS]
    trace_fields = [name for name in AGGREGATE_FIELDS if name in selected]
    first_tokens: dict[UUID, Any] = {}
    if "FIRST_TOKEN_TIME" in trace_fields:
        first_tokens = run_store.fetch_first_token_times(workspace_id, [root.row for root in roots])
    items = []
    for root, rendered in zip(roots, runs_json(workspace_id, roots, root_fields), strict=True):
        item: dict[str, Any] = {"root_run": rendered}
        if trace_fields:
            stats = {
                "TOTAL_TOKENS": root.row.usage.total_tokens or 0,
                "TOTAL_COST": as_float(root.row.usage.total_cost),
                "FIRST_TOKEN_TIME": first_tokens.get(root.row.id),
            }
            item["trace_aggregates"] = {name.lower(): stats[name] for name in trace_fields}
        items.append(item)
    return items


routes = [
    path("v2/traces/query", TracesQueryView.as_view(), name="v2-trace-query"),
    path("v2/traces/<uuid:trace_id>/runs", TraceRunsView.as_view(), name="v2-trace-runs"),
]
