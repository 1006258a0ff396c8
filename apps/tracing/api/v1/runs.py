"""Reading runs, v1 API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView, convert_drf_exception, validate
from apps.organizations.permissions import Permission
from apps.trace_store import Payload, RunQuery, filters, run_store
from apps.tracing import errors
from apps.tracing.api import run_queries
from apps.tracing.api.run_queries import parse_uuid, run_query, search_filter
from apps.tracing.api.v1.rendering import MESSAGES, payloads_for, runs_json
from apps.tracing.api.v1.serializers import (
    RunsQuerySerializer,
    ThreadRunsSerializer,
    query_params,
)

MAX_PAGE_SIZE = 100
MAX_TRACE_PAGE_SIZE = 1000
_FLAGS = ("exclude_serialized", "exclude_s3_stored_attributes", "include_messages")


class RunView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(
        parameters=[
            OpenApiParameter("session_id", UUID),
            *(OpenApiParameter(flag, bool) for flag in _FLAGS),
        ],
        responses=dict,
    )
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """Return a run with all fields; `session_id` selects among several projects."""
        params = request.query_params
        flags = {flag for flag in _FLAGS if params.get(flag, "").lower() == "true"}
        select = [*(str(payload) for payload in Payload), "in_dataset"]
        if "exclude_serialized" in flags:
            select.remove(Payload.SERIALIZED)
        if "include_messages" in flags:
            select.append(MESSAGES)
        run = run_store.get(
            self.workspace_id,
            run_id,
            project_id=parse_uuid(params.get("session_id"), "session_id"),
            payloads=payloads_for(select),
        )
        if run is None:
            raise errors.RunNotFound
        return Response(runs_json(self.workspace_id, [run], select)[0])


class RunsQueryView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return a page of runs, newest first unless `order` is `asc`."""
        params = validate(RunsQuerySerializer, request.data)
        select = params.get("select")
        page = run_queries.read_page(
            self.workspace_id,
            run_query(self.workspace_id, params),
            limit=_page_size(params),
            cursor=params.get("cursor"),
            payloads=payloads_for(select),
        )
        has_next = not params.get("skip_pagination")
        has_previous = has_next and not params.get("skip_prev_cursor")
        return Response(
            {
                "runs": runs_json(self.workspace_id, page.runs, select),
                "cursors": {
                    "next": page.next_cursor if has_next else None,
                    "prev": page.previous_cursor if has_previous else None,
                },
                "parsed_query": search_filter(params),
                "search_cursors": None,
            }
        )


class ValidateQueryView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Validate a filter; `errors` has the column of an error."""
        try:
            run_query(self.workspace_id, validate(RunsQuerySerializer, request.data))
        except ValidationError as invalid:
            error = convert_drf_exception(invalid)
            return Response({"valid": False, "detail": error.detail, "errors": error.errors})
        except core_errors.AppError as error:
            return Response({"valid": False, "detail": error.detail, "errors": error.errors})
        return Response({"valid": True, "detail": None, "errors": []})


class ThreadRunsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ThreadRunsSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """Return a thread's turns (root runs), oldest first, with payloads if selected."""
        params = query_params(ThreadRunsSerializer, request)
        project_id = params.get("session_id")
        query = RunQuery(
            project_ids=None if project_id is None else [project_id],
            is_root=True,
            where=filters.thread_filter(thread_key),
            oldest_first=True,
        )
        select = params.get("select") or []
        begin, end = params["offset"], params["offset"] + params["limit"]
        page = run_store.query(self.workspace_id, query, limit=end, payloads=payloads_for(select))
        if not page.runs:
            raise errors.TraceThreadNotFound
        return Response(
            {
                "thread_id": thread_key,
                "runs": runs_json(self.workspace_id, page.runs[begin:], select),
            }
        )


def _page_size(params: dict[str, Any]) -> int:
    """Return the page size; a larger requested limit is served by several pages."""
    if params.get("trace"):
        return MAX_TRACE_PAGE_SIZE
    return min(params.get("limit") or MAX_PAGE_SIZE, MAX_PAGE_SIZE)


routes = [
    path("runs/query", RunsQueryView.as_view(), name="run-query"),
    path("runs/query/validate", ValidateQueryView.as_view(), name="run-query-validate"),
    path("runs/threads/<path:thread_key>", ThreadRunsView.as_view(), name="thread-runs"),
]
