"""Projects; the API calls them sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.timestamps import as_utc
from apps.organizations.permissions import Permission
from apps.trace_store import ProjectStats, run_store
from apps.trace_store.errors import ProjectNotFound
from apps.tracing import errors, services
from apps.tracing.api.run_queries import parse_time, parse_uuid
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.rendering import project_json
from apps.tracing.api.v1.serializers import (
    CreateProjectSerializer,
    ProjectFields,
    ProjectListSerializer,
    ProjectMetadataSerializer,
    ProjectStatsSerializer,
    ResolutionSerializer,
    UpdateProjectSerializer,
    query_params,
)
from apps.tracing.hooks import dataset_exists
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services.projects import experiment_numbers, get_project

TIME_FIELDS = ("start_time", "end_time")
PLAN_FIELDS = ("num_examples", "num_repetitions", "evaluator_keys")
MAX_DELETED = 100
AGENT_VERSION_KEY = "LANGSMITH_AGENT_VERSION"
"""Metadata key under which clients record the commit of the running agent."""


class DeleteProjectsSerializer(serializers.Serializer[Any]):
    """Query parameters of a bulk deletion."""

    session_ids = serializers.ListField(child=serializers.UUIDField(), max_length=MAX_DELETED)


class ProjectsView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.PROJECTS_READ,
        "DELETE": Permission.PROJECTS_DELETE,
        "*": Permission.PROJECTS_WRITE,
    }

    @extend_schema(parameters=[ProjectListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of projects; `X-Pagination-Total` is the number of matches.

        Without a filter the page is never empty, because clients read the workspace id from the
        first project.
        """
        params = query_params(ProjectListSerializer, request)
        if params.get("name", DEFAULT_PROJECT) == DEFAULT_PROJECT:
            services.ensure_default_project(self.workspace_id)
        page, total = project_listing.list_page(self.workspace_id, params)
        return Response(
            projects_json(self.workspace_id, page, params),
            headers={"X-Pagination-Total": str(total)},
        )

    @extend_schema(
        request=CreateProjectSerializer,
        parameters=[OpenApiParameter("upsert", bool)],
        responses=dict,
    )
    def post(self, request: ApiRequest) -> Response:
        project = create_from_body(request, CreateProjectSerializer, self.workspace_id)
        return Response(projects_json(self.workspace_id, [project])[0])

    @extend_schema(parameters=[DeleteProjectsSerializer], responses={202: dict})
    def delete(self, request: ApiRequest) -> Response:
        """Delete the projects; if one does not exist, none is deleted."""
        project_ids = set(query_params(DeleteProjectsSerializer, request)["session_ids"])
        rows = Project.objects.for_workspace(self.workspace_id).present().filter(pk__in=project_ids)
        projects = list(rows)
        if len(projects) < len(project_ids):
            raise ProjectNotFound("One of the `session_ids` is of no project.")
        for project in projects:
            services.delete_project(project=project)
        return Response({"message": "deleted"}, status=202)


class ProjectView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.PROJECTS_READ,
        "DELETE": Permission.PROJECTS_DELETE,
        "*": Permission.PROJECTS_WRITE,
    }

    @extend_schema(parameters=[ProjectStatsSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        project = get_project(self.workspace_id, project_id)
        params = query_params(ProjectStatsSerializer, request)
        return Response(projects_json(self.workspace_id, [project], params)[0])

    @extend_schema(request=UpdateProjectSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID) -> Response:
        project = get_project(self.workspace_id, project_id)
        changes = changed_fields(request, UpdateProjectSerializer)
        changed = services.update_project(project=project, changes=changes)
        return Response(projects_json(self.workspace_id, [changed])[0])

    @extend_schema(responses={202: dict})
    def delete(self, request: ApiRequest, project_id: UUID) -> Response:
        """Delete the project; its runs are removed in the background."""
        services.delete_project(project=get_project(self.workspace_id, project_id))
        return Response({"message": "deleted"}, status=202)


class ProjectMetadataView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ProjectMetadataSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """Return the most frequent metadata keys with their most frequent values."""
        project = get_project(self.workspace_id, project_id)
        params = query_params(ProjectMetadataSerializer, request)
        result = run_store.fetch_frequent_metadata_values(
            self.workspace_id,
            project.pk,
            keys=params.get("metadata_keys"),
            since=parse_time(params.get("start_time")),
            values_per_key=params["k"],
        )
        return Response({"metadata": result})


class ResolutionView(WorkspaceAPIView):
    required_permission = Permission.PROJECTS_READ

    @extend_schema(parameters=[ResolutionSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Resolve an agent's environment or an experiment to its project."""
        params = query_params(ResolutionSerializer, request)
        projects = Project.objects.for_workspace(self.workspace_id).present()
        if params["kind"] == "AGENT":
            projects = projects.filter(
                agent_id=params.get("id", ""), agent_environment=params.get("environment", "")
            )
        elif params["kind"] == "EXPERIMENT":
            project_id = parse_uuid(params.get("id"), "id")
            projects = projects.experiments().filter(pk__in=[project_id] if project_id else [])
        else:
            projects = projects.none()  # traces of evaluators have no project of their own
        resolved_id = projects.values_list("pk", flat=True).first()
        if resolved_id is None:
            raise ProjectNotFound("No project belongs to this agent or experiment.")
        return Response({"session_id": resolved_id})


class AgentVersionsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """Return each version with the time of its first trace, newest first."""
        project = get_project(self.workspace_id, project_id)
        result = run_store.fetch_metadata_values(self.workspace_id, project.pk, AGENT_VERSION_KEY)
        return Response([{"commit_sha": value, "first_seen_at": time} for value, time in result])


def create_from_body(
    request: ApiRequest, serializer_class: type[CreateProjectSerializer], workspace_id: UUID
) -> Project:
    """Create the project of a request body; tags require `TAGS_WRITE`."""
    fields = {
        name: value
        for name, value in _body_fields(request, serializer_class).items()
        if value is not None
    }
    if "reference_dataset_id" in fields and not dataset_exists(
        workspace_id, fields["reference_dataset_id"]
    ):
        raise errors.DatasetNotFound
    if fields.get("tag_value_ids"):
        request.auth.require(Permission.TAGS_WRITE)
    plan = {name: fields.pop(name) for name in PLAN_FIELDS if name in fields}
    return services.create_project(
        workspace_id=workspace_id,
        name=fields.pop("name", None),
        upsert=request.query_params.get("upsert", "").lower() == "true",
        tag_value_ids=fields.pop("tag_value_ids", ()),
        **fields,
        **({"plan": plan} if plan else {}),
    )


def projects_json(
    workspace_id: UUID, projects: Sequence[Project], params: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the projects with their run counts, and with statistics if requested."""
    ids = [project.pk for project in projects]
    counts = run_store.project_stats(workspace_id, ids)
    numbers = experiment_numbers(workspace_id, projects)
    with_statistics = params is not None and params.get("include_stats")
    statistics = (
        project_listing.project_statistics(workspace_id, ids, params or {})
        if with_statistics
        else {}
    )
    return [
        project_json(
            project,
            counts.get(project.pk, ProjectStats()),
            statistics.get(project.pk),
            numbers.get(project.pk),
        )
        for project in projects
    ]


def changed_fields(
    request: ApiRequest, serializer_class: type[UpdateProjectSerializer]
) -> dict[str, Any]:
    """Return the changed fields. Null means unchanged, but it resets `long_days`."""
    fields = _body_fields(request, serializer_class)
    return {
        name: value for name, value in fields.items() if value is not None or name == "long_days"
    }


def _body_fields(request: ApiRequest, serializer_class: type[ProjectFields]) -> dict[str, Any]:
    """Return the validated fields with times in UTC."""
    fields = validate(serializer_class, request.data)
    return fields | {
        name: as_utc(fields[name]) for name in TIME_FIELDS if fields.get(name) is not None
    }


routes = [
    path("sessions", ProjectsView.as_view(), name="project-list"),
    path("sessions/resolutions", ResolutionView.as_view(), name="project-resolution"),
    path("sessions/<uuid:project_id>", ProjectView.as_view(), name="project-read-update"),
    path(
        "sessions/<uuid:project_id>/metadata",
        ProjectMetadataView.as_view(),
        name="project-metadata",
    ),
    path(
        "v1/platform/sessions/<uuid:project_id>/agent-versions",
        AgentVersionsView.as_view(),
        name="agent-versions",
    ),
]
