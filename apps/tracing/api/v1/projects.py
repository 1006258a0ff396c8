"""Projects, which the wire calls sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.core.timestamps import as_utc
from apps.organizations.permissions import Permission
from apps.trace_store import ProjectStats, run_store
from apps.trace_store.postgres.reading import metadata_values
from apps.tracing import errors, services
from apps.tracing.api.run_queries import moment, uuid_of
from apps.tracing.api.v1 import project_listing
from apps.tracing.api.v1.rendering import project_json
from apps.tracing.api.v1.serializers import (
    CreateProjectSerializer,
    ProjectListSerializer,
    ProjectMetadataSerializer,
    ProjectStatsSerializer,
    ResolutionSerializer,
    UpdateProjectSerializer,
    query_params,
)
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services import experiments

TIMES = ("start_time", "end_time")
PLAN = ("num_examples", "num_repetitions", "evaluator_keys")
MOST_DELETED = 100


class DeleteProjectsSerializer(serializers.Serializer[Any]):
    """The query string of a deletion of several projects."""

    session_ids = serializers.ListField(child=serializers.UUIDField(), max_length=MOST_DELETED)


class ProjectsView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.PROJECTS_READ,
        "DELETE": Permission.PROJECTS_DELETE,
        "*": Permission.PROJECTS_WRITE,
    }

    @extend_schema(parameters=[ProjectListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """A page of projects; the number of all that match is in `X-Pagination-Total`.

        Never empty without a filter: clients learn their workspace's id from the first one.
        """
        asked = query_params(ProjectListSerializer, request)
        if asked.get("name", DEFAULT_PROJECT) == DEFAULT_PROJECT:
            services.ensure_default_project(self.workspace_id)
        page, total = project_listing.page(self.workspace_id, asked)
        return Response(
            projects_json(self.workspace_id, page, asked),
            headers={"X-Pagination-Total": str(total)},
        )

    @extend_schema(
        request=CreateProjectSerializer,
        parameters=[OpenApiParameter("upsert", bool)],
        responses=dict,
    )
    def post(self, request: ApiRequest) -> Response:
        body = CreateProjectSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        project = made_project(request, body, self.workspace_id)
        return Response(projects_json(self.workspace_id, [project])[0])

    @extend_schema(parameters=[DeleteProjectsSerializer], responses={202: dict})
    def delete(self, request: ApiRequest) -> Response:
        """Several projects, or none of them when one is not there."""
        wanted = set(query_params(DeleteProjectsSerializer, request)["session_ids"])
        found = Project.objects.for_workspace(self.workspace_id).present().filter(pk__in=wanted)
        projects = list(found)
        if len(projects) < len(wanted):
            raise errors.ProjectNotFound
        for project in projects:
            services.delete_project(project=project)
        return Response({"message": "deleted"}, status=202)


class ProjectView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.PROJECTS_READ,
        "DELETE": Permission.PROJECTS_DELETE,
        "*": Permission.PROJECTS_WRITE,
    }

    def _project(self, project_id: UUID) -> Project:
        return get_or_404(Project.objects.for_workspace(self.workspace_id).present(), pk=project_id)

    @extend_schema(parameters=[ProjectStatsSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self._project(project_id)
        asked = query_params(ProjectStatsSerializer, request)
        return Response(projects_json(self.workspace_id, [project], asked)[0])

    @extend_schema(request=UpdateProjectSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self._project(project_id)
        body = UpdateProjectSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        changed = services.update_project(project=project, changes=changes_of(body))
        return Response(projects_json(self.workspace_id, [changed])[0])

    @extend_schema(responses={202: dict})
    def delete(self, request: ApiRequest, project_id: UUID) -> Response:
        """The project is gone at once; its runs follow."""
        services.delete_project(project=self._project(project_id))
        return Response({"message": "deleted"}, status=202)


class ProjectMetadataView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[ProjectMetadataSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """The most frequent keys of the runs' metadata, each with its most frequent values."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        project = get_or_404(projects, pk=project_id)
        asked = query_params(ProjectMetadataSerializer, request)
        found = metadata_values.frequent_values(
            self.workspace_id,
            project.pk,
            keys=asked.get("metadata_keys"),
            since=moment(asked.get("start_time")),
            values_per_key=asked["k"],
        )
        return Response({"metadata": found})


class ResolutionView(WorkspaceAPIView):
    required_permission = Permission.PROJECTS_READ

    @extend_schema(parameters=[ResolutionSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """The project that an address stands for: an agent's in an environment, an experiment."""
        asked = query_params(ResolutionSerializer, request)
        projects = Project.objects.for_workspace(self.workspace_id).present()
        if asked["kind"] == "AGENT":
            projects = projects.filter(
                agent_id=asked.get("id", ""), agent_environment=asked.get("environment", "")
            )
        elif asked["kind"] == "EXPERIMENT":
            project_id = uuid_of(asked.get("id"), "id")
            projects = projects.experiments().filter(pk__in=[project_id] if project_id else [])
        else:
            projects = projects.none()  # evaluators' traces have no project of their own here
        found = projects.values_list("pk", flat=True).first()
        if found is None:
            raise errors.ProjectNotFound("No project has this address.")
        return Response({"session_id": found})


def made_project(request: ApiRequest, body: Any, workspace_id: UUID) -> Project:
    """The project that a checked body describes. To tag it is a right of its own."""
    fields = {name: value for name, value in fields_of(body).items() if value is not None}
    if fields.get("tag_value_ids"):
        request.auth.require(Permission.TAGS_WRITE)
    plan = {name: fields.pop(name) for name in PLAN if name in fields}
    return services.create_project(
        workspace_id=workspace_id,
        name=fields.pop("name", None),
        upsert=request.query_params.get("upsert", "").lower() == "true",
        tag_value_ids=fields.pop("tag_value_ids", ()),
        **fields,
        **({"plan": plan} if plan else {}),
    )


def projects_json(
    workspace_id: UUID, projects: Sequence[Project], asked: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The projects with what is cheap to know, and with their figures when that is asked for."""
    ids = [project.pk for project in projects]
    counts = run_store.project_stats(workspace_id, ids)
    numbers = experiments.numbers(workspace_id, projects)
    wants = asked is not None and asked.get("include_stats")
    figures = project_listing.stats_of(workspace_id, ids, asked or {}) if wants else {}
    return [
        project_json(
            project,
            counts.get(project.pk, ProjectStats()),
            figures.get(project.pk),
            numbers.get(project.pk),
        )
        for project in projects
    ]


def changes_of(body: Any) -> dict[str, Any]:
    """What changes. Clients send null for what they do not change; a life that is null ends."""
    said = fields_of(body)
    return {n: value for n, value in said.items() if value is not None or n == "long_days"}


def fields_of(body: Any) -> dict[str, Any]:
    """What a checked body says, its times in UTC."""
    given: dict[str, Any] = dict(body.validated_data)
    return given | {n: as_utc(given[n]) for n in TIMES if given.get(n) is not None}


routes = [
    path("sessions", ProjectsView.as_view(), name="project-list"),
    path("sessions/resolutions", ResolutionView.as_view(), name="project-resolution"),
    path("sessions/<uuid:project_id>", ProjectView.as_view(), name="project-read-update"),
    path(
        "sessions/<uuid:project_id>/metadata",
        ProjectMetadataView.as_view(),
        name="project-metadata",
    ),
]
