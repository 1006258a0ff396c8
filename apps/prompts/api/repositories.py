"""API of repositories: list, create, change, delete and like."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Count, F, Func
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.organizations.models import ResourceType
from apps.organizations.permissions import Permission
from apps.organizations.services.tags import filter_by_tags
from apps.prompts.api.rendering import repository_json, repository_list_json
from apps.prompts.api.serializers import (
    LikeSerializer,
    RepositoryChangesSerializer,
    RepositoryFilterSerializer,
    RepositorySerializer,
    query_params,
)
from apps.prompts.models import Repository, RepositoryType
from apps.prompts.querysets import RepositoryQuerySet
from apps.prompts.services import repositories as services
from apps.prompts.services.lookup import (
    find_own_repository,
    find_repository,
    published_repositories,
    readable_repositories,
)

PERMISSIONS: dict[str, str] = {
    "GET": Permission.PROMPTS_READ,
    "DELETE": Permission.PROMPTS_DELETE,
    "*": Permission.PROMPTS_WRITE,
}


class RepositoriesView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[RepositoryFilterSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List the workspace's repositories; with `is_public=true` those of all workspaces.

        Without `repo_type` the list has prompts only.
        """
        params = query_params(RepositoryFilterSerializer, request)
        rows = filter_repositories(self.workspace_id, params)
        page = sort_repositories(rows, params).select_related("workspace", "head")
        if not params["with_latest_manifest"]:
            page = page.defer("head__manifest")
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response(
            {
                "repos": repository_list_json(
                    list(page.prefetch_related("commit_tags")[start:stop]),
                    request.auth,
                    with_owners=params["include_owners"],
                    with_manifest=params["with_latest_manifest"],
                ),
                "total": rows.count(),
            }
        )

    @extend_schema(request=RepositorySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create an empty repository."""
        params = validate(RepositorySerializer, request.data)
        if params["is_public"]:
            request.auth.require(Permission.PROMPTS_SHARE)
        repository = services.create_repository(
            workspace_id=self.workspace_id,
            handle=params["repo_handle"],
            type=RepositoryType(params["repo_type"]),
            is_public=params["is_public"],
            description=params.get("description", ""),
            readme=params.get("readme", ""),
            tags=params.get("tags", ()),
            tag_value_ids=params.get("tag_value_ids", ()),
            created_by_id=request.auth.user_id,
        )
        return Response({"repo": repository_json(repository, request.auth)})


class RepositoryTagsView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_READ

    @extend_schema(parameters=[RepositoryFilterSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Count the labels of the repositories that match the filters, most frequent first."""
        params = query_params(RepositoryFilterSerializer, request)
        labels = filter_repositories(self.workspace_id, params).annotate(
            tag=Func(F("tags"), function="unnest")
        )
        counts = labels.values("tag").annotate(count=Count("pk")).order_by("-count", "tag")
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response({"tags": list(counts[start:stop])})


class RepositoryView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str) -> Response:
        repository = find_repository(self.workspace_id, owner, repo)
        return Response({"repo": repository_json(repository, request.auth)})

    @extend_schema(request=RepositoryChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, owner: str, repo: str) -> Response:
        repository = find_own_repository(self.workspace_id, owner, repo)
        changes = validate(RepositoryChangesSerializer, request.data)
        if changes.get("is_public") and not repository.is_public:
            request.auth.require(Permission.PROMPTS_SHARE)
        changed = services.update_repository(repository=repository, changes=changes)
        return Response({"repo": repository_json(changed, request.auth)})

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Delete the repository with its commits and tags.

        The answer is an empty object: older JavaScript clients parse it.
        """
        repository = find_own_repository(self.workspace_id, owner, repo)
        services.delete_repository(repository=repository)
        return Response({})


class LikeView(WorkspaceAPIView):
    required_permission = Permission.PROMPTS_WRITE

    @extend_schema(request=LikeSerializer, responses=dict)
    def post(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Like the repository, or take the like back; a caller's like counts once."""
        repository = find_repository(self.workspace_id, owner, repo)
        params = validate(LikeSerializer, request.data)
        count = services.set_like(
            repository=repository, caller=request.auth, is_liked=params["like"]
        )
        return Response({"likes": count})


def filter_repositories(workspace_id: UUID, params: dict[str, Any]) -> RepositoryQuerySet:
    """The repositories that the workspace may read and that match the filters."""
    rows = _select_scope(workspace_id, params)
    types = params.get("repo_types") or [params.get("repo_type") or RepositoryType.PROMPT]
    rows = rows.filter(type__in=types).with_tags(params["tags"])
    if params["is_archived"] != "allow":
        rows = rows.filter(is_archived=params["is_archived"] == "true")
    if params.get("query"):
        rows = rows.matching(params["query"], by_prefix=params["match_prefix"])
    if params["tag_value_id"]:
        rows = filter_by_tags(rows, workspace_id, params["tag_value_id"], [ResourceType.PROMPT])
    if params["has_commits"] is not None:
        rows = rows.filter(head__isnull=not params["has_commits"])
    # No repository is a fork or comes from elsewhere, so these filters match none.
    from_elsewhere = params.get("source") == "external"
    if from_elsewhere or "upstream_repo_owner" in params or "upstream_repo_handle" in params:
        return rows.none()
    return rows


def _select_scope(workspace_id: UUID, params: dict[str, Any]) -> RepositoryQuerySet:
    is_public = params["is_public"]
    if params.get("tenant_handle") or params.get("tenant_id"):
        rows = readable_repositories(workspace_id)
        if params.get("tenant_handle"):
            rows = rows.filter(workspace__handle=params["tenant_handle"])
        if params.get("tenant_id"):
            rows = rows.filter(workspace_id=params["tenant_id"])
        return rows if is_public is None else rows.filter(is_public=is_public)
    if is_public:
        return published_repositories()
    rows = Repository.objects.for_workspace(workspace_id)
    return rows if is_public is None else rows.filter(is_public=False)


def sort_repositories(rows: RepositoryQuerySet, params: dict[str, Any]) -> RepositoryQuerySet:
    if params["sort_field"] == "relevance":
        return rows.by_relevance(params.get("query", ""))
    sign = "-" if params["sort_direction"] == "desc" else ""
    return rows.order_by(f"{sign}{params['sort_field']}", "pk")


routes = [
    path("repos", RepositoriesView.as_view(), name="repositories"),
    path("repos/tags", RepositoryTagsView.as_view(), name="repository-labels"),
    path("repos/<str:owner>/<str:repo>", RepositoryView.as_view(), name="repository"),
    path("likes/<str:owner>/<str:repo>", LikeView.as_view(), name="repository-like"),
]
