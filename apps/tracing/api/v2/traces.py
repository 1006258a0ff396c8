"""Reading traces, second version of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission
from apps.trace_store import RunDetail, RunQuery, run_store
from apps.trace_store.postgres.reading import trace_times
from apps.tracing import errors
from apps.tracing.api.run_queries import expression, moment
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import (
    FeedbackTimesSerializer,
    PageAPIView,
    filters_of,
    page_size,
    selects,
    window,
)
from apps.tracing.api.v2.rendering import SELECTABLE, number, payloads_of, runs_json

AGGREGATES = ("TOTAL_TOKENS", "TOTAL_COST", "FIRST_TOKEN_TIME")
"""What is told of the trace, not of its root."""
_PAGE_OF_TRACE = 1000


class TracesQuerySerializer(FeedbackTimesSerializer):
    """Which traces of a project, and what of each."""

    project_id = serializers.UUIDField()
    trace_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True
    )
    page_size = page_size(default=20, most=100)
    selects = selects(SELECTABLE)


class TraceRunsSerializer(serializers.Serializer[Any]):
    """The query string of a trace's runs."""

    project_id = serializers.UUIDField(required=False)
    filter = serializers.CharField(required=False)
    min_start_time = serializers.DateTimeField(required=False)
    max_start_time = serializers.DateTimeField(required=False)
    selects = selects(SELECTABLE)


class TracesQueryView(PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=TracesQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A page of traces, newest first; of the last day, unless told otherwise."""
        body = TracesQuerySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked: dict[str, Any] = body.validated_data
        selected = asked.get("selects") or []
        begin, end = window(asked, is_open=bool(asked.get("trace_ids")))
        project = self.project(asked["project_id"])
        where, where_any = filters_of(asked, "trace_filter", "tree_filter")
        query = RunQuery(
            project_ids=[project.pk],
            run_ids=asked.get("trace_ids") or None,  # a trace has the id of its root
            is_root=True,
            started_from=begin,
            started_until=end,
            where=where,
            where_any=where_any,
        )
        page = run_store.query(
            self.workspace_id,
            query,
            limit=asked["page_size"] or 20,
            cursor=asked.get("cursor") or None,
            payloads=payloads_of(selected),
        )
        items = _traces_json(self.workspace_id, page.runs, selected)
        return Response({"items": items, "next_cursor": page.next_cursor})


class TraceRunsView(PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[TraceRunsSerializer], responses=dict)
    def get(self, request: ApiRequest, trace_id: UUID) -> Response:
        """All runs of the trace, depth first, parents before children."""
        asked = query_params(TraceRunsSerializer, request)
        project = self.project(asked.get("project_id"))
        selected = asked.get("selects") or []
        everything = RunQuery(project_ids=[project.pk], trace_id=trace_id)
        query = RunQuery(
            project_ids=[project.pk],
            trace_id=trace_id,
            started_from=moment(asked.get("min_start_time")),
            started_until=moment(asked.get("max_start_time")),
            where=expression(asked.get("filter")),
        )
        runs = _all(self.workspace_id, query, selected)
        if not runs and not run_store.query(self.workspace_id, everything, limit=1).runs:
            raise errors.RunNotFound("No such trace.")
        runs.sort(key=lambda run: run.row.dotted_order)
        return Response({"items": runs_json(self.workspace_id, runs, selected)})


def _all(workspace_id: UUID, query: RunQuery, selected: Sequence[str]) -> list[RunDetail]:
    found: list[RunDetail] = []
    cursor = None
    while True:
        page = run_store.query(
            workspace_id,
            query,
            limit=_PAGE_OF_TRACE,
            cursor=cursor,
            payloads=payloads_of(selected),
        )
        found += page.runs
        cursor = page.next_cursor
        if cursor is None:
            return found


def _traces_json(
    workspace_id: UUID, roots: Sequence[RunDetail], selected: Sequence[str]
) -> list[dict[str, Any]]:
    of_root = [name for name in selected if name not in AGGREGATES]
    of_trace = [name for name in AGGREGATES if name in selected]
    first: dict[UUID, Any] = {}
    if "FIRST_TOKEN_TIME" in of_trace:
        first = trace_times.first_token_times(workspace_id, [root.row for root in roots])
    items = []
    for root, rendered in zip(roots, runs_json(workspace_id, roots, of_root), strict=True):
        item: dict[str, Any] = {"root_run": rendered}
        if of_trace:
            told = {
                "TOTAL_TOKENS": root.row.usage.total_tokens or 0,
                "TOTAL_COST": number(root.row.usage.total_cost),
                "FIRST_TOKEN_TIME": first.get(root.row.id),
            }
            item["trace_aggregates"] = {name.lower(): told[name] for name in of_trace}
        items.append(item)
    return items


routes = [
    path("v2/traces/query", TracesQueryView.as_view(), name="v2-trace-query"),
    path("v2/traces/<uuid:trace_id>/runs", TraceRunsView.as_view(), name="v2-trace-runs"),
]
