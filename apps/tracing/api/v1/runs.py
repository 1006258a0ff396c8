"""Reading runs, first version of the protocol."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView, from_drf
from apps.organizations.permissions import Permission
from apps.trace_store import Payload, RunQuery, filters, run_store
from apps.tracing import errors
from apps.tracing.api import paging
from apps.tracing.api.run_queries import run_query, searched, uuid_of
from apps.tracing.api.v1.rendering import MESSAGES, payloads_for, runs_json
from apps.tracing.api.v1.serializers import (
    RunsQuerySerializer,
    ThreadRunsSerializer,
    query_params,
)

LARGEST_PAGE = 100
LARGEST_PAGE_OF_TRACE = 1000
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
        """The run with everything it has; `session_id` chooses between projects that share it."""
        params = request.query_params
        flags = {flag for flag in _FLAGS if params.get(flag, "").lower() == "true"}
        select = [str(payload) for payload in Payload]
        if "exclude_serialized" in flags:
            select.remove(Payload.SERIALIZED)
        if "include_messages" in flags:
            select.append(MESSAGES)
        run = run_store.get(
            self.workspace_id,
            run_id,
            project_id=uuid_of(params.get("session_id"), "session_id"),
            payloads=payloads_for(select),
        )
        if run is None:
            raise errors.RunNotFound
        return Response(runs_json(self.workspace_id, [run], select)[0])


class RunsQueryView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A page of runs, newest first unless asked otherwise."""
        body = RunsQuerySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked: dict[str, Any] = body.validated_data
        select = asked.get("select")
        page = paging.page(
            self.workspace_id,
            run_query(self.workspace_id, asked),
            limit=_limit(asked),
            cursor=asked.get("cursor"),
            payloads=payloads_for(select),
        )
        leads_on = not asked.get("skip_pagination")
        leads_back = leads_on and not asked.get("skip_prev_cursor")
        return Response(
            {
                "runs": runs_json(self.workspace_id, page.runs, select),
                "cursors": {
                    "next": page.following if leads_on else None,
                    "prev": page.previous if leads_back else None,
                },
                "parsed_query": searched(asked),
                "search_cursors": None,
            }
        )


class ValidateQueryView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=RunsQuerySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Whether the query would be understood, and where it would not."""
        body = RunsQuerySerializer(data=request.data)
        try:
            body.is_valid(raise_exception=True)
            run_query(self.workspace_id, body.validated_data)
        except ValidationError as invalid:
            error = from_drf(invalid)
            return Response({"valid": False, "detail": error.detail, "errors": error.errors})
        except core_errors.AppError as error:
            return Response({"valid": False, "detail": error.detail, "errors": error.errors})
        return Response({"valid": True, "detail": None, "errors": []})


class ThreadRunsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ThreadRunsSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """The turns of a thread, oldest first: the roots of its traces, payloads if selected."""
        asked = query_params(ThreadRunsSerializer, request)
        project_id = asked.get("session_id")
        query = RunQuery(
            project_ids=None if project_id is None else [project_id],
            is_root=True,
            where=filters.parse(f"eq(thread_id, {filters.quote(thread_key)})"),
            oldest_first=True,
        )
        select = asked.get("select") or []
        begin, end = asked["offset"], asked["offset"] + asked["limit"]
        found = run_store.query(self.workspace_id, query, limit=end, payloads=payloads_for(select))
        if not found.runs:
            raise errors.ThreadNotFound
        return Response(
            {
                "thread_id": thread_key,
                "runs": runs_json(self.workspace_id, found.runs[begin:], select),
            }
        )


def _limit(asked: dict[str, Any]) -> int:
    """Clients pass their user's limit as it is; pages are smaller and lead on by a cursor."""
    if asked.get("trace"):
        return LARGEST_PAGE_OF_TRACE
    return min(asked.get("limit") or LARGEST_PAGE, LARGEST_PAGE)


routes = [
    path("runs/query", RunsQueryView.as_view(), name="run-query"),
    path("runs/query/validate", ValidateQueryView.as_view(), name="run-query-validate"),
    path("runs/threads/<path:thread_key>", ThreadRunsView.as_view(), name="thread-runs"),
]
