"""API of the directories of agents and skills."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.prompts import pull_counts
from apps.prompts.api.repositories import PERMISSIONS
from apps.prompts.api.serializers import (
    DirectoryCommitSerializer,
    DirectoryQuerySerializer,
    query_params,
)
from apps.prompts.services import directories
from apps.prompts.services.commits import ANY_PARENT
from apps.prompts.services.lookup import find_commit, find_own_repository, find_repository
from apps.prompts.services.repositories import delete_repository


class DirectoryView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[DirectoryQuerySerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Return the files of a commit; links name the commit that they select."""
        repository = find_repository(self.workspace_id, owner, repo)
        params = query_params(DirectoryQuerySerializer, request)
        directories.require_directory(repository, params.get("repo_type"))
        commit = find_commit(repository, params["commit"])
        pull_counts.add(commit.pk)
        return Response(
            {
                "commit_id": commit.pk,
                "commit_hash": commit.commit_hash,
                "files": directories.read_files(repository, commit, self.workspace_id),
            }
        )

    @extend_schema(parameters=[DirectoryQuerySerializer], responses={204: None})
    def delete(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Delete the repository; one of another type than `repo_type` is not found."""
        repository = find_own_repository(self.workspace_id, owner, repo)
        params = query_params(DirectoryQuerySerializer, request)
        directories.require_directory(repository, params.get("repo_type"))
        delete_repository(repository=repository)
        return Response(status=204)


class DirectoryCommitsView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(request=DirectoryCommitSerializer, responses=dict)
    def post(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Change files of the latest commit; null deletes a file."""
        repository = find_own_repository(self.workspace_id, owner, repo)
        directories.require_directory(repository)
        params = validate(DirectoryCommitSerializer, request.data)
        commit = directories.create_directory_commit(
            repository=repository,
            files=params.get("files", {}),
            parent=params.get("parent_commit") or ANY_PARENT,
            created_by_id=request.auth.user_id,
            skipped_webhooks=bool(params.get("skip_webhooks")),
        )
        return Response(
            {
                "commit": {
                    "id": commit.pk,
                    "commit_hash": commit.commit_hash,
                    "created_at": commit.created_at,
                }
            }
        )


_DIRECTORIES = "v1/platform/hub/repos/<str:owner>/<str:repo>/directories"
routes = [
    path(_DIRECTORIES, DirectoryView.as_view(), name="directory"),
    path(f"{_DIRECTORIES}/commits", DirectoryCommitsView.as_view(), name="directory-commits"),
]
