"""Public routes of shared traces and threads, without authentication."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import OpenAPIView, validate
from apps.core.errors import AppError
from apps.core.http.middleware import error_response
from apps.feedback.api.queries import FeedbackListSerializer, query_params, read_feedback_page
from apps.trace_store import ALL_PAYLOADS, NO_PAYLOADS, run_store
from apps.tracing import errors, message_schemas
from apps.tracing.api.downloads import file_response
from apps.tracing.api.public.rendering import (
    shared_feedback_json,
    shared_runs_json,
    shared_runs_v2_json,
)
from apps.tracing.api.v1.serializers import OneOrMany
from apps.tracing.api.v2.base import build_selection_field
from apps.tracing.api.v2.rendering import SELECTABLE, payloads_for
from apps.tracing.services.sharing import resolve_link

MAX_PAGE_SIZE = 100
MAX_IDS = 1000
FEEDBACK_FILTERS = ("run", "key", "source", "limit", "offset")
MAX_RUNS_V2 = 50_000


class SharedQuerySerializer(serializers.Serializer[Any]):
    """A selection of the shared runs; without ids, all runs."""

    id = OneOrMany(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=MAX_IDS
    )
    cursor = serializers.CharField(required=False, allow_null=True)
    limit = serializers.IntegerField(required=False, allow_null=True, min_value=1)


class SharedQueryV2Serializer(serializers.Serializer[Any]):
    selects = build_selection_field(SELECTABLE)


class SharedRunView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request, token: UUID, run_id: UUID | None = None) -> Response:
        """Return the link's initial run, or the shared run with the id."""
        shared = resolve_link(token)
        run = shared.run(run_id)
        return Response(shared_runs_json(shared, [run], ALL_PAYLOADS)[0])


class SharedRunsView(OpenAPIView):
    @extend_schema(request=SharedQuerySerializer, responses=dict)
    def post(self, request: Request, token: UUID) -> Response:
        """Return a page of the shared runs, oldest first."""
        shared = resolve_link(token)
        params = validate(SharedQuerySerializer, request.data)
        page = run_store.query(
            shared.share.workspace_id,
            shared.query(run_ids=params.get("id") or None),
            limit=min(params.get("limit") or MAX_PAGE_SIZE, MAX_PAGE_SIZE),
            cursor=params.get("cursor") or None,
            payloads=ALL_PAYLOADS,
        )
        return Response(
            {
                "runs": shared_runs_json(shared, page.runs, ALL_PAYLOADS),
                "cursors": {"next": page.next_cursor, "prev": None},
            }
        )


class SharedFeedbackView(OpenAPIView):
    @extend_schema(parameters=[FeedbackListSerializer], responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        """Return the feedback on the shared runs, newest first."""
        page, _ = read_feedback_page(
            request, resolve_link(token).feedback(), allowed_filters=FEEDBACK_FILTERS
        )
        return Response([shared_feedback_json(item) for item in page])


class SharedRunV2View(OpenAPIView):
    @extend_schema(parameters=[SharedQueryV2Serializer], responses=dict)
    def get(self, request: Request, token: UUID, run_id: UUID) -> Response:
        shared = resolve_link(token)
        shared.run(run_id, NO_PAYLOADS)
        selected = (
            validate(SharedQueryV2Serializer, query_params(request, ("selects",))).get("selects")
            or []
        )
        run = shared.run(run_id, payloads_for(selected))
        return Response(shared_runs_v2_json(shared, [run], selected)[0])


class SharedRunsV2View(OpenAPIView):
    @extend_schema(request=SharedQueryV2Serializer, responses=dict)
    def post(self, request: Request, token: UUID) -> Response:
        """Return all shared runs, oldest first, unpaginated."""
        shared = resolve_link(token)
        selected = validate(SharedQueryV2Serializer, request.data).get("selects") or []
        page = run_store.query(
            shared.share.workspace_id,
            shared.query(),
            limit=MAX_RUNS_V2,
            payloads=payloads_for(selected),
        )
        return Response({"items": shared_runs_v2_json(shared, page.runs, selected)})


@require_safe
def attachment(request: HttpRequest, token: UUID, run_id: UUID, name: str) -> HttpResponseBase:
    """Serve an attachment of a shared run."""
    try:
        run = resolve_link(token).run(run_id, NO_PAYLOADS)
    except AppError as error:
        return error_response(request, error)
    for item in run.row.attachments:
        if item.name == name:
            return file_response(request, item.path, item.mime_type, item.name)
    return error_response(request, errors.RunNotFound("The run has no attachment with this name."))


@require_safe
def message_schema(request: HttpRequest) -> HttpResponse:
    return HttpResponse(message_schemas.message_schema(), content_type="application/json")


@require_safe
def tool_schema(request: HttpRequest) -> HttpResponse:
    return HttpResponse(message_schemas.tool_schema(), content_type="application/json")


routes = [
    path("public/schemas/v1/message.json", message_schema, name="public-message-schema"),
    path("public/schemas/v1/tooldef.json", tool_schema, name="public-tool-schema"),
    path("public/<uuid:token>/run", SharedRunView.as_view(), name="public-run"),
    path("public/<uuid:token>/run/<uuid:run_id>", SharedRunView.as_view(), name="public-run-of"),
    path("public/<uuid:token>/runs/query", SharedRunsView.as_view(), name="public-runs"),
    path("public/<uuid:token>/feedbacks", SharedFeedbackView.as_view(), name="public-feedback"),
    path(
        "public/<uuid:token>/run/<uuid:run_id>/attachments/<path:name>",
        attachment,
        name="public-attachment",
    ),
    path(
        "v2/public/<uuid:token>/run/<uuid:run_id>", SharedRunV2View.as_view(), name="v2-public-run"
    ),
    path("v2/public/<uuid:token>/runs/query", SharedRunsV2View.as_view(), name="v2-public-runs"),
]
