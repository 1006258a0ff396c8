"""Reading threads, v2 API."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core import signing
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.core.errors import InvalidCursor
from apps.feedback.services import score_stats
from apps.organizations.permissions import Permission
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.filters import Expression
from apps.trace_store.filters.parsing import parse_thread_filter
from apps.trace_store.metrics import RunMetrics
from apps.tracing.api.run_queries import parse_filters, parse_time
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import (
    SearchSerializer,
    V2APIView,
    V2PageAPIView,
    build_selection_field,
    page_size_field,
    time_window,
)
from apps.tracing.api.v2.rendering import FIELDS, payloads_for, runs_json
from apps.tracing.api.v2.thread_rendering import (
    METRIC_FIELDS,
    THREAD_FIELDS,
    THREADS_METRICS,
    TURN_NUMBER,
    metrics_json,
    thread_json,
    turn_json,
)

_RUN_FIELDS = (
    *("THREAD_ID", "TRACE_ID", "PROMPT_TOKENS", "COMPLETION_TOKENS", "TOTAL_TOKENS"),
    *("START_TIME", "END_TIME", "FIRST_TOKEN_TIME", "INPUTS_PREVIEW", "OUTPUTS_PREVIEW", "INPUTS"),
    *("OUTPUTS", "ERROR", "PROMPT_COST", "COMPLETION_COST", "TOTAL_COST", "NAME", "ERROR_PREVIEW"),
    *("PROMPT_TOKEN_DETAILS", "COMPLETION_TOKEN_DETAILS"),
    *("PROMPT_COST_DETAILS", "COMPLETION_COST_DETAILS"),
)
TRACE_FIELDS = (*_RUN_FIELDS, "LATENCY", "OP", TURN_NUMBER)


_HAS_THREAD = filters.parse("is_not_null(thread_id)")


class ThreadsQuerySerializer(SearchSerializer):
    """A filter of threads: those with a turn that meets all conditions."""

    project_id = serializers.UUIDField()
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    thread_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    page_size = page_size_field(default=20, maximum=100)


class ThreadTracesSerializer(serializers.Serializer[Any]):
    """Query parameters of a thread's turns."""

    project_id = serializers.UUIDField(required=False)
    filter = serializers.CharField(required=False)
    trace_filter = serializers.CharField(required=False)
    tree_filter = serializers.CharField(required=False)
    page_size = page_size_field(default=20, maximum=100)
    cursor = serializers.CharField(required=False)
    selects = build_selection_field(TRACE_FIELDS)


class ThreadStatsSerializer(serializers.Serializer[Any]):
    """Query parameters of one thread's statistics."""

    session_id = serializers.UUIDField(required=False)
    filter = serializers.CharField(required=False)
    selects = build_selection_field((*THREAD_FIELDS, *METRIC_FIELDS))


class ThreadsStatsSerializer(SearchSerializer):
    """A filter of threads and the selected statistics over all of them."""

    project_id = serializers.UUIDField()
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    thread_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    select = build_selection_field((*THREADS_METRICS, "THREAD_COUNT", "THREAD_FEEDBACK_STATS"))


class ThreadsQueryView(V2PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=ThreadsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return a page of threads by newest turn; by default those of the last day."""
        params = validate(ThreadsQuerySerializer, request.data)
        project = self.project(params["project_id"])
        as_of, offset = _decode_cursor(params.get("cursor"))
        limit = params["page_size"] or 20
        query = _turns_query(project.pk, params, until=as_of)
        page = run_store.query_threads(
            self.workspace_id, query, offset=offset, limit=limit, all_turns=True
        )
        keys = [row.thread_key for row in page.threads]
        scores = score_stats.by_thread(self.workspace_id, project.pk, keys)
        end = offset + len(page.threads)
        # The cursor contains a time, so that new turns do not shift threads between pages.
        next_cursor = (
            _encode_cursor(as_of or datetime.now(UTC), end) if keys and end < page.total else None
        )
        return Response(
            {
                "items": [
                    thread_json(row) | {"feedback_stats": scores.get(row.thread_key, {})}
                    for row in page.threads
                ],
                "next_cursor": next_cursor,
            }
        )


class ThreadTracesView(V2APIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ThreadTracesSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """Return the thread's turns, newest first."""
        params = query_params(ThreadTracesSerializer, request)
        project = self.project(params.get("project_id"))
        selected = params.get("selects") or []
        run_fields = [name for name in selected if name in FIELDS]
        query = RunQuery(
            project_ids=[project.pk],
            is_root=True,
            where=filters.all_of([filters.thread_filter(thread_key), _search_filter(params)]),
            where_any=parse_filters(params.get("tree_filter")),
        )
        page = run_store.query(
            self.workspace_id,
            query,
            limit=params["page_size"] or 20,
            cursor=params.get("cursor") or None,
            payloads=payloads_for(run_fields),
        )
        numbers: dict[UUID, int] = {}
        if TURN_NUMBER in selected:
            numbers = run_store.fetch_turn_numbers(self.workspace_id, project.pk, thread_key)
        items = [
            turn_json(run, rendered, selected, numbers)
            for run, rendered in zip(
                page.runs, runs_json(self.workspace_id, page.runs, run_fields), strict=True
            )
        ]
        return Response({"items": items, "next_cursor": page.next_cursor})


class ThreadStatsView(V2APIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ThreadStatsSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """Return one thread's statistics; zeros if it has no turns."""
        params = query_params(ThreadStatsSerializer, request)
        project = self.project(params.get("session_id"))
        selected = params.get("selects") or []
        query = RunQuery(
            project_ids=[project.pk],
            where=filters.all_of(
                [filters.thread_filter(thread_key), parse_filters(params.get("filter"))]
            ),
        )
        row = run_store.fetch_thread(self.workspace_id, thread_key, query)
        metrics = RunMetrics() if row is None else row.metrics
        stats: dict[str, Any] = {
            "TURNS": metrics.runs,
            "FIRST_START_TIME": row and row.first_start,
            "LAST_START_TIME": row and row.last_start,
            "LAST_END_TIME": row and row.last_end,
        }
        if "FEEDBACK_STATS" in selected:
            scores = score_stats.by_thread(self.workspace_id, project.pk, [thread_key])
            stats["FEEDBACK_STATS"] = scores.get(thread_key, {})
        selected_stats = {name.lower(): stats[name] for name in THREAD_FIELDS if name in selected}
        return Response(selected_stats | metrics_json(metrics, selected, METRIC_FIELDS))


class ThreadsStatsView(V2APIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=ThreadsStatsSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return statistics of all turns of the matching threads; by default of the last day."""
        params = validate(ThreadsStatsSerializer, request.data)
        project = self.project(params["project_id"])
        selected = params.get("select") or []
        query = _turns_query(project.pk, params, until=None)
        in_threads = replace(query, where=filters.all_of([_HAS_THREAD, query.where]))
        metrics_query = MetricsQuery(
            query=in_threads, details=any("DETAILS" in name for name in selected)
        )
        metrics = run_store.aggregate(self.workspace_id, metrics_query).overall
        stats = metrics_json(metrics, selected, THREADS_METRICS)
        if "THREAD_COUNT" in selected:
            page = run_store.query_threads(self.workspace_id, query, limit=1)
            stats["thread_count"] = page.total
        if "THREAD_FEEDBACK_STATS" in selected:
            by_project = score_stats.by_project_runs(
                self.workspace_id,
                [project.pk],
                started_from=query.started_from,
                started_until=query.started_until,
            )
            stats["thread_feedback_stats"] = {
                key: scores
                for key, scores in by_project.get(project.pk, {}).items()
                if scores.get("contains_thread_feedback")
            }
        return Response(stats)


def _search_filter(params: dict[str, Any]) -> Expression | None:
    return parse_filters(params.get("filter"), params.get("trace_filter"))


def _turns_query(project_id: UUID, params: dict[str, Any], *, until: datetime | None) -> RunQuery:
    begin, end = time_window(params)
    thread_filter = params.get("thread_filter")
    return RunQuery(
        project_ids=[project_id],
        is_root=True,
        started_from=begin,
        started_until=min(end, until) if until else end,
        where=_search_filter(params),
        where_any=parse_filters(params.get("tree_filter")),
        where_thread=parse_thread_filter(thread_filter) if thread_filter else None,
    )


def _encode_cursor(as_of: datetime, offset: int) -> str:
    return signing.b64_encode(json.dumps([as_of.isoformat(), offset]).encode()).decode()


def _decode_cursor(cursor: str | None) -> tuple[datetime | None, int]:
    """Decode a cursor into its snapshot time and offset."""
    if not cursor:
        return None, 0
    try:
        as_of, offset = json.loads(signing.b64_decode(cursor.encode()))
        seen_at = datetime.fromisoformat(as_of)
        if seen_at.tzinfo is None or not 0 <= offset <= 1_000_000:
            raise InvalidCursor
    except (ValueError, TypeError, RecursionError):
        raise InvalidCursor from None
    return parse_time(seen_at), int(offset)


_THREAD = "v2/threads/<path:thread_key>"
routes = [
    path("v2/threads/query", ThreadsQueryView.as_view(), name="v2-thread-query"),
    path("v2/threads/stats", ThreadsStatsView.as_view(), name="v2-threads-stats"),
    path(f"{_THREAD}/traces", ThreadTracesView.as_view(), name="v2-thread-traces"),
    path(f"{_THREAD}/stats", ThreadStatsView.as_view(), name="v2-thread-stats"),
]
