"""Reading runs, v2 API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.organizations.permissions import Permission
from apps.trace_store import RunDetail, RunQuery, RunType, run_store
from apps.tracing import errors
from apps.tracing.api.run_queries import parse_uuid, resolve_project_ids
from apps.tracing.api.v1.rendering import run_path
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import (
    FeedbackTimesSerializer,
    UpperChoiceField,
    V2APIView,
    V2PageAPIView,
    build_selection_field,
    page_size_field,
    parse_filter_fields,
    time_window,
)
from apps.tracing.api.v2.rendering import SELECTABLE, payloads_for, runs_json


class RunsQueryV2Serializer(FeedbackTimesSerializer):
    """A filter of runs and the selected fields."""

    project_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True
    )
    reference_dataset_id = serializers.UUIDField(required=False, allow_null=True)
    ids = serializers.ListField(child=serializers.UUIDField(), required=False, allow_null=True)
    trace_id = serializers.UUIDField(required=False, allow_null=True)
    run_type = UpperChoiceField(
        choices=[kind.upper() for kind in RunType], required=False, allow_null=True
    )
    is_root = serializers.BooleanField(required=False, allow_null=True, default=None)
    has_error = serializers.BooleanField(required=False, allow_null=True, default=None)
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    reference_examples = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True
    )
    include_subtree_usage = serializers.BooleanField(required=False, default=False)
    page_size = page_size_field(default=100, maximum=1000)
    selects = build_selection_field(SELECTABLE)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if bool(attrs.get("project_ids")) == bool(attrs.get("reference_dataset_id")):
            raise serializers.ValidationError("Set either `project_ids` or `reference_dataset_id`.")
        return super().validate(attrs)


class RunRetrieveSerializer(serializers.Serializer[Any]):
    """Query parameters of one run."""

    selects = build_selection_field(SELECTABLE)


class RunsQueryV2View(V2PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQueryV2Serializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return a page of runs, newest first; by default those of the last day."""
        params = validate(RunsQueryV2Serializer, request.data)
        selected = params.get("selects") or []
        page = run_store.query(
            self.workspace_id,
            _run_query(self.workspace_id, params),
            limit=params["page_size"] or 100,
            cursor=params.get("cursor") or None,
            payloads=payloads_for(selected),
        )
        runs = page.runs
        if params["include_subtree_usage"] and "FIRST_TOKEN_TIME" in selected:
            runs = _add_first_tokens(self.workspace_id, runs)
        return Response(
            {
                "items": runs_json(self.workspace_id, runs, selected),
                "next_cursor": page.next_cursor,
            }
        )


class RunV2View(V2APIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(
        parameters=[RunRetrieveSerializer, OpenApiParameter("project_id", UUID)], responses=dict
    )
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        project_id = parse_uuid(request.query_params.get("project_id"), "project_id")
        # Load the row first: access is decided before the parameters are validated.
        run = run_store.get(self.workspace_id, run_id, project_id=project_id, payloads=())
        if run is None:
            raise errors.RunNotFound
        selected = query_params(RunRetrieveSerializer, request).get("selects") or []
        requested = payloads_for(selected)
        if requested:
            run = run_store.get(
                self.workspace_id, run_id, project_id=run.row.project_id, payloads=requested
            )
            if run is None:  # deleted in the meantime
                raise errors.RunNotFound
        return Response(runs_json(self.workspace_id, [run], selected)[0])


class RunUrlView(V2APIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(
        parameters=[
            OpenApiParameter("project_id", UUID),
            OpenApiParameter("trace_id", UUID),
            OpenApiParameter("start_time", str),
        ],
        responses=dict,
    )
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """Return the URL of the run's page; the run need not exist, but its project must."""
        params = request.query_params
        project = self.project(parse_uuid(params.get("project_id"), "project_id"))
        trace_id = parse_uuid(params.get("trace_id"), "trace_id")
        path = run_path(self.workspace_id, project.pk, run_id, trace_id, params.get("start_time"))
        return Response({"url": f"{settings.BASE_URL}{path}"})


def _run_query(workspace_id: UUID, params: dict[str, Any]) -> RunQuery:
    dataset_id = params.get("reference_dataset_id")
    # Queries by run, trace or experiment are not limited to a time window.
    is_open = bool(params.get("ids") or params.get("trace_id") or dataset_id)
    begin, end = time_window(params, is_open=is_open)
    run_type = params.get("run_type")
    where, where_root, where_any = parse_filter_fields(
        params, "filter", "trace_filter", "tree_filter"
    )
    return RunQuery(
        project_ids=resolve_project_ids(
            workspace_id, params.get("project_ids") or None, dataset_id
        ),
        run_ids=params.get("ids") or None,
        trace_id=params.get("trace_id"),
        reference_example_ids=params.get("reference_examples") or None,
        run_type=run_type.lower() if run_type else None,
        is_root=params.get("is_root"),
        has_error=params.get("has_error"),
        started_from=begin,
        started_until=end,
        where=where,
        where_root=where_root,
        where_any=where_any,
    )


def _add_first_tokens(workspace_id: UUID, runs: Any) -> list[RunDetail]:
    """Set each run's first token time to the earliest of its subtree."""
    first_tokens = run_store.fetch_first_token_times(workspace_id, [run.row for run in runs])
    return [
        replace(run, row=replace(run.row, first_token_time=first_tokens.get(run.row.id)))
        for run in runs
    ]


routes = [
    path("v2/runs/query", RunsQueryV2View.as_view(), name="v2-run-query"),
    path("v2/runs/<uuid:run_id>", RunV2View.as_view(), name="v2-run"),
    path("v2/runs/<uuid:run_id>/url", RunUrlView.as_view(), name="v2-run-url"),
]
