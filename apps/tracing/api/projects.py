"""Projects, which the wire calls sessions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.tracing import services, store
from apps.tracing.api.rendering import as_utc, project_json
from apps.tracing.api.serializers import (
    CreateProjectSerializer,
    ProjectListSerializer,
    UpdateProjectSerializer,
)
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.querysets import ProjectQuerySet
from apps.tracing.store import ProjectStats

TIMES = ("start_time", "end_time")
REPEATED = ("id", "reference_dataset")


class ProjectsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    @extend_schema(parameters=[ProjectListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """A page of projects; the number of all that match is in `X-Pagination-Total`.

        Never empty without a filter: clients learn their workspace's id from the first one.
        """
        query = ProjectListSerializer(data=_query_params(request))
        query.is_valid(raise_exception=True)
        asked: dict[str, Any] = query.validated_data
        if asked.get("name", DEFAULT_PROJECT) == DEFAULT_PROJECT:
            services.ensure_default_project(self.workspace_id)
        projects = _matching(Project.objects.for_workspace(self.workspace_id).present(), asked)
        begin, end = asked["offset"], asked["offset"] + asked["limit"]
        page = list(projects[begin:end])
        stats = store.runs.project_stats(self.workspace_id, [project.pk for project in page])
        total = begin + len(page) if 0 < len(page) < asked["limit"] else projects.count()
        return Response(
            [project_json(project, stats[project.pk]) for project in page],
            headers={"X-Pagination-Total": str(total)},
        )

    @extend_schema(request=CreateProjectSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        body = CreateProjectSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        fields = {name: value for name, value in _fields(body).items() if value is not None}
        project = services.create_project(
            workspace_id=self.workspace_id,
            name=fields.pop("name", None),
            upsert=request.query_params.get("upsert", "").lower() == "true",
            **fields,
        )
        return Response(_shown(project))


class ProjectView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.PROJECTS_READ,
        "DELETE": Permission.PROJECTS_DELETE,
        "*": Permission.PROJECTS_WRITE,
    }

    def _project(self, project_id: UUID) -> Project:
        return get_or_404(Project.objects.for_workspace(self.workspace_id).present(), pk=project_id)

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        return Response(_shown(self._project(project_id)))

    @extend_schema(request=UpdateProjectSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID) -> Response:
        project = self._project(project_id)
        body = UpdateProjectSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        # Clients send null for what they do not change.
        changes = {name: value for name, value in _fields(body).items() if value is not None}
        return Response(_shown(services.update_project(project=project, changes=changes)))

    @extend_schema(responses={202: dict})
    def delete(self, request: ApiRequest, project_id: UUID) -> Response:
        """The project is gone at once; its runs follow."""
        services.delete_project(project=self._project(project_id))
        return Response({"message": "deleted"}, status=202)


def _shown(project: Project) -> dict[str, Any]:
    stats = store.runs.project_stats(project.workspace_id, [project.pk])
    return project_json(project, stats.get(project.pk, ProjectStats()))


def _fields(body: Any) -> dict[str, Any]:
    given: dict[str, Any] = dict(body.validated_data)
    return given | {n: as_utc(given[n]) for n in TIMES if given.get(n) is not None}


def _matching(projects: ProjectQuerySet, asked: dict[str, Any]) -> ProjectQuerySet:
    if "name" in asked:
        projects = projects.filter(name=asked["name"])
    if asked.get("name_contains"):
        projects = projects.filter(name__icontains=asked["name_contains"])
    if "id" in asked:
        projects = projects.filter(pk__in=asked["id"])
    if asked["reference_free"]:
        projects = projects.plain()
    if "reference_dataset" in asked:
        projects = projects.filter(reference_dataset_id__in=asked["reference_dataset"])
    if isinstance(asked.get("metadata"), dict):
        projects = projects.filter(extra__metadata__contains=asked["metadata"])
    sign = "-" if asked["sort_by_desc"] else ""
    return projects.order_by(f"{sign}{asked['sort_by']}", f"{sign}id")


def _query_params(request: ApiRequest) -> dict[str, Any]:
    """The query string, lists where lists are meant: repeated or with commas."""
    given: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        if name in REPEATED:
            given[name] = [part for value in values for part in value.split(",") if part]
        elif values[-1] != "":
            given[name] = values[-1]
    return given


routes = [
    path("sessions", ProjectsView.as_view(), name="project-list"),
    path("sessions/<uuid:project_id>", ProjectView.as_view(), name="project-read-update"),
]
