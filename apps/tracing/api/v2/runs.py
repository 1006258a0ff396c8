"""Reading runs, second version of the protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission
from apps.trace_store import RunDetail, RunQuery, RunType, run_store
from apps.trace_store.postgres.reading import trace_times
from apps.tracing import errors
from apps.tracing.api.run_queries import projects_of, uuid_of
from apps.tracing.api.v1.rendering import path_of_run
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import (
    FeedbackTimesSerializer,
    PageAPIView,
    SecondAPIView,
    UpperChoiceField,
    filters_of,
    page_size,
    selects,
    window,
)
from apps.tracing.api.v2.rendering import SELECTABLE, payloads_of, runs_json


class RunsQueryV2Serializer(FeedbackTimesSerializer):
    """Which runs of which projects, and what of each."""

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
    page_size = page_size(default=100, most=1000)
    selects = selects(SELECTABLE)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if bool(attrs.get("project_ids")) == bool(attrs.get("reference_dataset_id")):
            raise serializers.ValidationError(
                "Give either `project_ids` or `reference_dataset_id`."
            )
        return super().validate(attrs)


class RetrieveSerializer(serializers.Serializer[Any]):
    """The query string of one run."""

    selects = selects(SELECTABLE)


class RunsQueryV2View(PageAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQueryV2Serializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A page of runs, newest first; of the last day, unless told otherwise."""
        body = RunsQueryV2Serializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked: dict[str, Any] = body.validated_data
        selected = asked.get("selects") or []
        page = run_store.query(
            self.workspace_id,
            _query(self.workspace_id, asked),
            limit=asked["page_size"] or 100,
            cursor=asked.get("cursor") or None,
            payloads=payloads_of(selected),
        )
        runs = page.runs
        if asked["include_subtree_usage"] and "FIRST_TOKEN_TIME" in selected:
            runs = _with_first_tokens(self.workspace_id, runs)
        return Response(
            {
                "items": runs_json(self.workspace_id, runs, selected),
                "next_cursor": page.next_cursor,
            }
        )


class RunV2View(SecondAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(
        parameters=[RetrieveSerializer, OpenApiParameter("project_id", UUID)], responses=dict
    )
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        project_id = uuid_of(request.query_params.get("project_id"), "project_id")
        # The row first: whose run it is decides before what is asked of it.
        run = run_store.get(self.workspace_id, run_id, project_id=project_id, payloads=())
        if run is None:
            raise errors.RunNotFound
        selected = query_params(RetrieveSerializer, request).get("selects") or []
        wanted = payloads_of(selected)
        if wanted:
            run = run_store.get(
                self.workspace_id, run_id, project_id=run.row.project_id, payloads=wanted
            )
            if run is None:  # it was deleted meanwhile
                raise errors.RunNotFound
        return Response(runs_json(self.workspace_id, [run], selected)[0])


class RunUrlView(SecondAPIView):
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
        """Where people see the run. It may still be on its way here: its project is enough."""
        params = request.query_params
        project = self.project(uuid_of(params.get("project_id"), "project_id"))
        trace_id = uuid_of(params.get("trace_id"), "trace_id")
        path = path_of_run(
            self.workspace_id, project.pk, run_id, trace_id, params.get("start_time")
        )
        return Response({"url": f"{settings.BASE_URL}{path}"})


def _query(workspace_id: UUID, asked: dict[str, Any]) -> RunQuery:
    dataset_id = asked.get("reference_dataset_id")
    # Who knows a run, a trace or an experiment need not know its day.
    is_open = bool(asked.get("ids") or asked.get("trace_id") or dataset_id)
    begin, end = window(asked, is_open=is_open)
    run_type = asked.get("run_type")
    where, where_root, where_any = filters_of(asked, "filter", "trace_filter", "tree_filter")
    return RunQuery(
        project_ids=projects_of(workspace_id, asked.get("project_ids") or None, dataset_id),
        run_ids=asked.get("ids") or None,
        trace_id=asked.get("trace_id"),
        reference_example_ids=asked.get("reference_examples") or None,
        run_type=run_type.lower() if run_type else None,
        is_root=asked.get("is_root"),
        has_error=asked.get("has_error"),
        started_from=begin,
        started_until=end,
        where=where,
        where_root=where_root,
        where_any=where_any,
    )


def _with_first_tokens(workspace_id: UUID, runs: Any) -> list[RunDetail]:
    """The runs with the first token of all that is below them."""
    first = trace_times.first_token_times(workspace_id, [run.row for run in runs])
    return [
        replace(run, row=replace(run.row, first_token_time=first.get(run.row.id))) for run in runs
    ]


routes = [
    path("v2/runs/query", RunsQueryV2View.as_view(), name="v2-run-query"),
    path("v2/runs/<uuid:run_id>", RunV2View.as_view(), name="v2-run"),
    path("v2/runs/<uuid:run_id>/url", RunUrlView.as_view(), name="v2-run-url"),
]
