"""Projects, v2 API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core import signing
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest
from apps.core.drf import StorableJSONField
from apps.core.errors import InvalidCursor
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.tracing import services
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.projects import changed_fields, create_from_body, projects_json
from apps.tracing.api.v1.serializers import (
    CreateProjectSerializer,
    UpdateProjectSerializer,
    query_params,
)
from apps.tracing.api.v2.base import UpperChoiceField, V2APIView, page_size_field
from apps.tracing.models import DEFAULT_PROJECT, Project, TraceTier

KINDS = ("PROJECT", "AGENT", "EXPERIMENT")
TRACE_TIERS = {"LONG_LIVED": TraceTier.LONG, "SHORT_LIVED": TraceTier.SHORT}
_AGENT_PROJECT_MESSAGE = (
    "The project of an agent is created by the first run that is sent to the agent's address."
)
_SORTS = tuple(name.upper() for name in project_listing.SORTS if name != "runs_count")


class SessionsQuerySerializer(serializers.Serializer[Any]):
    """Filter, order and statistics of projects."""

    cursor = serializers.CharField(required=False)
    page_size = page_size_field(default=20, maximum=100)
    id = serializers.ListField(child=serializers.UUIDField(), required=False)
    name = serializers.CharField(required=False, trim_whitespace=False)
    name_contains = serializers.CharField(required=False)
    type = serializers.ListField(child=UpperChoiceField(choices=KINDS), required=False)
    reference_dataset_id = serializers.ListField(child=serializers.UUIDField(), required=False)
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_TAGS_PER_REQUEST
    )
    dataset_version = serializers.CharField(required=False, max_length=200)
    metadata = StorableJSONField(required=False, binary=True)
    filter = serializers.CharField(required=False)
    sort_by = UpperChoiceField(choices=_SORTS, required=False, default="START_TIME")
    sort_order = serializers.ChoiceField(choices=["asc", "desc"], required=False, default="desc")
    sort_by_feedback_key = serializers.CharField(required=False, max_length=1000)
    sort_by_feedback_source = UpperChoiceField(choices=["RUN", "SESSION"], required=False)
    include_stats = serializers.BooleanField(required=False, default=False)
    include_facets = serializers.BooleanField(required=False, default=False)
    stats_filter = serializers.CharField(required=False)
    stats_select = serializers.ListField(child=serializers.CharField(), required=False)
    stats_start_time = serializers.DateTimeField(required=False)


class SessionQuerySerializer(serializers.Serializer[Any]):
    """Query parameters of one project."""

    include_stats = serializers.BooleanField(required=False, default=False)
    stats_start_time = serializers.DateTimeField(required=False)


class CreateSessionSerializer(CreateProjectSerializer):
    """A new project; its type follows from its fields."""

    type = UpperChoiceField(choices=KINDS, required=False)
    trace_tier = UpperChoiceField(choices=list(TRACE_TIERS), required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        kind = attrs.pop("type", None)
        has_dataset = attrs.get("reference_dataset_id") is not None
        if kind == "AGENT":
            raise serializers.ValidationError({"type": _AGENT_PROJECT_MESSAGE})
        if kind == "EXPERIMENT" and not has_dataset:
            raise serializers.ValidationError(
                {"reference_dataset_id": "An experiment needs a reference dataset."}
            )
        if kind == "PROJECT" and has_dataset:
            raise serializers.ValidationError(
                {"type": "A project with a reference dataset is an experiment."}
            )
        return _parse_tier(attrs)


class UpdateSessionSerializer(UpdateProjectSerializer):
    """Changes; absent fields stay unchanged."""

    trace_tier = UpperChoiceField(choices=list(TRACE_TIERS), required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return _parse_tier(attrs)


def _parse_tier(data: dict[str, Any]) -> dict[str, Any]:
    """Translate the API's trace tier to the model's."""
    tier = data.get("trace_tier")
    return data | ({"trace_tier": TRACE_TIERS[tier]} if tier else {})


class SessionsView(V2APIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[SessionsQuerySerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        params = query_params(SessionsQuerySerializer, request)
        if params.get("name", DEFAULT_PROJECT) == DEFAULT_PROJECT:
            services.ensure_default_project(self.workspace_id)
        offset = _decode_cursor(params.get("cursor"))
        query = _v1_query(params, offset)
        page, total = project_listing.list_page(self.workspace_id, query)
        end = offset + len(page)
        items = projects_json(self.workspace_id, page, query)
        return Response(
            {
                "items": [_session_json(*item) for item in zip(page, items, strict=True)],
                "next_cursor": _encode_cursor(end) if page and end < total else None,
            }
        )

    @extend_schema(
        request=CreateSessionSerializer,
        parameters=[OpenApiParameter("upsert", bool)],
        responses={201: dict},
    )
    def post(self, request: ApiRequest) -> Response:
        project = create_from_body(request, CreateSessionSerializer, self.workspace_id)
        return Response(_sessions_json(self.workspace_id, project), status=201)


class SessionView(V2APIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[SessionQuerySerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self.project(project_id)
        params = query_params(SessionQuerySerializer, request)
        return Response(_sessions_json(self.workspace_id, project, params))

    @extend_schema(request=UpdateSessionSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self.project(project_id)
        changes = changed_fields(request, UpdateSessionSerializer)
        changed = services.update_project(project=project, changes=changes)
        return Response(_sessions_json(self.workspace_id, changed))


def _v1_query(params: dict[str, Any], offset: int) -> dict[str, Any]:
    """Translate the query to v1 parameters."""
    query = {name: value for name, value in params.items() if name != "reference_dataset_id"}
    if "reference_dataset_id" in params:
        query["reference_dataset"] = params["reference_dataset_id"]
    return query | {
        "offset": offset,
        "limit": params["page_size"] or 20,
        "sort_by": params["sort_by"].lower(),
        "sort_by_desc": params["sort_order"] == "desc",
        "sort_by_feedback_source": params.get("sort_by_feedback_source", "RUN").lower(),
        "facets": params["include_facets"],
    }


def _sessions_json(
    workspace_id: UUID, project: Project, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    return _session_json(project, projects_json(workspace_id, [project], params)[0])


def _session_json(project: Project, v1_fields: dict[str, Any]) -> dict[str, Any]:
    v2_fields: dict[str, Any] = {
        "type": _session_kind(project),
        "trace_tier": next(
            name for name, tier in TRACE_TIERS.items() if tier == project.trace_tier
        ),
        **{
            name: None if v1_fields[name] is None else float(v1_fields[name])
            for name in ("prompt_cost", "completion_cost", "total_cost")
            if name in v1_fields
        },
    }
    return v1_fields | v2_fields


def _session_kind(project: Project) -> str:
    if project.reference_dataset_id is not None:
        return "EXPERIMENT"
    return "PROJECT" if project.agent_id is None else "AGENT"


def _encode_cursor(offset: int) -> str:
    return signing.b64_encode(str(offset).encode()).decode()


def _decode_cursor(cursor: str | None) -> int:
    if not cursor:
        return 0
    try:
        offset = int(signing.b64_decode(cursor.encode()))
    except ValueError:
        raise InvalidCursor from None
    if not 0 <= offset <= 1_000_000:
        raise InvalidCursor
    return offset


routes = [
    path("v2/sessions", SessionsView.as_view(), name="v2-project-list"),
    path("v2/sessions/<uuid:project_id>", SessionView.as_view(), name="v2-project"),
]
