"""Projects, second version of the protocol."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core import signing
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.trace_store.errors import InvalidCursor
from apps.tracing import services
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.projects import changes_of, made_project, projects_json
from apps.tracing.api.v1.serializers import (
    CreateProjectSerializer,
    UpdateProjectSerializer,
    query_params,
)
from apps.tracing.api.v2.base import SecondAPIView, UpperChoiceField, page_size
from apps.tracing.models import DEFAULT_PROJECT, Project, TraceTier

KINDS = ("PROJECT", "AGENT", "EXPERIMENT")
TIERS = {"LONG_LIVED": TraceTier.LONG, "SHORT_LIVED": TraceTier.SHORT}
_AGENTS = "The project of an agent is made by the first run that is sent to the agent's address."
_SORTS = tuple(name.upper() for name in project_listing.SORTS if name != "runs_count")


class SessionsQuerySerializer(serializers.Serializer[Any]):
    """Which projects, in what order, with which figures."""

    cursor = serializers.CharField(required=False)
    page_size = page_size(default=20, most=100)
    id = serializers.ListField(child=serializers.UUIDField(), required=False)
    name = serializers.CharField(required=False, trim_whitespace=False)
    name_contains = serializers.CharField(required=False)
    type = serializers.ListField(child=UpperChoiceField(choices=KINDS), required=False)
    reference_dataset_id = serializers.ListField(child=serializers.UUIDField(), required=False)
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_TAGS_PER_REQUEST
    )
    dataset_version = serializers.CharField(required=False, max_length=200)
    metadata = serializers.JSONField(required=False, binary=True)
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
    """The query string of one project."""

    include_stats = serializers.BooleanField(required=False, default=False)
    stats_start_time = serializers.DateTimeField(required=False)


class CreateSessionSerializer(CreateProjectSerializer):
    """A project to be made; its type follows from what it is given."""

    type = UpperChoiceField(choices=KINDS, required=False)
    trace_tier = UpperChoiceField(choices=list(TIERS), required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        kind = attrs.pop("type", None)
        has_dataset = attrs.get("reference_dataset_id") is not None
        if kind == "AGENT":
            raise serializers.ValidationError({"type": _AGENTS})
        if kind == "EXPERIMENT" and not has_dataset:
            raise serializers.ValidationError({"reference_dataset_id": "An experiment has one."})
        if kind == "PROJECT" and has_dataset:
            raise serializers.ValidationError({"type": "What has a dataset is an experiment."})
        return _with_tier(attrs)


class UpdateSessionSerializer(UpdateProjectSerializer):
    """What changes; what is not given stays."""

    trace_tier = UpperChoiceField(choices=list(TIERS), required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return _with_tier(attrs)


def _with_tier(said: dict[str, Any]) -> dict[str, Any]:
    """The tier as the house calls it."""
    tier = said.get("trace_tier")
    return said | ({"trace_tier": TIERS[tier]} if tier else {})


class SessionsView(SecondAPIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[SessionsQuerySerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        asked = query_params(SessionsQuerySerializer, request)
        if asked.get("name", DEFAULT_PROJECT) == DEFAULT_PROJECT:
            services.ensure_default_project(self.workspace_id)
        offset = _decode(asked.get("cursor"))
        wanted = _as_first(asked, offset)
        page, total = project_listing.page(self.workspace_id, wanted)
        end = offset + len(page)
        items = projects_json(self.workspace_id, page, wanted)
        return Response(
            {
                "items": [_json(*one) for one in zip(page, items, strict=True)],
                "next_cursor": _encode(end) if page and end < total else None,
            }
        )

    @extend_schema(
        request=CreateSessionSerializer,
        parameters=[OpenApiParameter("upsert", bool)],
        responses={201: dict},
    )
    def post(self, request: ApiRequest) -> Response:
        body = CreateSessionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        project = made_project(request, body, self.workspace_id)
        return Response(_shown(self.workspace_id, project), status=201)


class SessionView(SecondAPIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[SessionQuerySerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self.project(project_id)
        asked = query_params(SessionQuerySerializer, request)
        return Response(_shown(self.workspace_id, project, asked))

    @extend_schema(request=UpdateSessionSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self.project(project_id)
        body = UpdateSessionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        changed = services.update_project(project=project, changes=changes_of(body))
        return Response(_shown(self.workspace_id, changed))


def _as_first(asked: dict[str, Any], offset: int) -> dict[str, Any]:
    """The same question in the words of the first version."""
    wanted = {name: value for name, value in asked.items() if name != "reference_dataset_id"}
    if "reference_dataset_id" in asked:
        wanted["reference_dataset"] = asked["reference_dataset_id"]
    return wanted | {
        "offset": offset,
        "limit": asked["page_size"] or 20,
        "sort_by": asked["sort_by"].lower(),
        "sort_by_desc": asked["sort_order"] == "desc",
        "sort_by_feedback_source": asked.get("sort_by_feedback_source", "RUN").lower(),
        "facets": asked["include_facets"],
    }


def _shown(
    workspace_id: UUID, project: Project, asked: dict[str, Any] | None = None
) -> dict[str, Any]:
    return _json(project, projects_json(workspace_id, [project], asked)[0])


def _json(project: Project, first: dict[str, Any]) -> dict[str, Any]:
    second: dict[str, Any] = {
        "type": _kind(project),
        "trace_tier": next(name for name, tier in TIERS.items() if tier == project.trace_tier),
        **{
            name: None if first[name] is None else float(first[name])
            for name in ("prompt_cost", "completion_cost", "total_cost")
            if name in first
        },
    }
    return first | second


def _kind(project: Project) -> str:
    if project.reference_dataset_id is not None:
        return "EXPERIMENT"
    return "PROJECT" if project.agent_id is None else "AGENT"


def _encode(offset: int) -> str:
    return signing.b64_encode(str(offset).encode()).decode()


def _decode(cursor: str | None) -> int:
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
