"""API of commits and their tags."""

from __future__ import annotations

from typing import Any, cast

from django.urls import path
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.http import parse_etags
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core import errors
from apps.core.api import ApiRequest, HasPermission, WorkspaceAPIView, validate
from apps.core.callers import Caller
from apps.prompts import manifest, pull_counts
from apps.prompts.api.rendering import author_names, commit_json, tag_json, tag_moves_json
from apps.prompts.api.repositories import PERMISSIONS
from apps.prompts.api.serializers import (
    CommitPageSerializer,
    CommitQuerySerializer,
    CommitSerializer,
    CommitTagSerializer,
    DiffQuerySerializer,
    MoveTagSerializer,
    PageSerializer,
    TagHistorySerializer,
    query_params,
)
from apps.prompts.diff import compare
from apps.prompts.models import Commit, Repository
from apps.prompts.services import commit_tags, commits
from apps.prompts.services.lookup import (
    commits_of,
    find_commit,
    find_own_repository,
    find_published_repository,
    find_repository,
    read_manifest,
)

MAX_MANIFESTS_PER_PAGE = 20
"""A page with manifests is shorter: each may have a megabyte."""
PINNED_MAX_AGE_SECONDS = 3600


class CommitsView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[CommitPageSerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """List commits, newest first; with `include_model` with their manifests."""
        repository = find_repository(self.workspace_id, owner, repo)
        params = query_params(CommitPageSerializer, request)
        rows = commits_of(repository).newest_first()
        if "tag" in params:
            tagged = commit_tags.tags_of(repository).filter(name=params["tag"])
            rows = rows.filter(pk__in=tagged.values("commit_id"))
        limit, with_manifest = params["limit"], params["include_model"]
        if with_manifest:
            limit = min(limit, MAX_MANIFESTS_PER_PAGE)
        else:
            rows = rows.without_manifest()
        page = list(rows[params["offset"] : params["offset"] + limit])
        names = author_names(page, request.auth)
        rendered = [
            commit_json(
                commit,
                names,
                content=manifest.with_model(commit.manifest) if with_manifest else None,
                with_stats=params["include_stats"],
            )
            for commit in page
        ]
        return Response({"commits": rendered, "total": rows.count()})

    @extend_schema(request=CommitSerializer, responses=dict)
    def post(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Commit a manifest.

        409 if `parent_commit` is not the latest commit, or the manifest equals the latest one.
        Without `parent_commit` the commit follows the latest one; null claims that there is none.
        """
        repository = find_own_repository(self.workspace_id, owner, repo)
        params = validate(CommitSerializer, request.data)
        commit = commits.create_prompt_commit(
            repository=repository,
            content=params["manifest"],
            parent=(params["parent_commit"] or None)
            if "parent_commit" in params
            else commits.ANY_PARENT,
            description=params.get("description") or "",
            created_by_id=request.auth.user_id,
            skipped_webhooks=params.get("skip_webhooks") or (),
        )
        names = author_names([commit], request.auth)
        content = manifest.with_model(commit.manifest)
        return Response({"commit": commit_json(commit, names, content=content)})


class AnonymousPulls(HasPermission):
    """Admits callers without credentials; the view gives them published prompts only."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        is_anonymous_read = request.auth is None and request.method in {"GET", "HEAD"}
        return is_anonymous_read or super().has_permission(request, view)


class CommitView(WorkspaceAPIView):
    required_permission = PERMISSIONS
    permission_classes = (AnonymousPulls,)

    @extend_schema(parameters=[CommitQuerySerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str, commit: str) -> Response:
        """Return the manifest of a commit: by hash, a prefix of it, tag, or `latest`.

        Without `include_model` a prompt with a model is reduced to the prompt. Public prompts need
        no key; without one, every other prompt is 401, whether it exists or not.
        """
        repository = _find_readable(request, owner, repo)
        params = query_params(CommitQuerySerializer, request)
        row = find_commit(repository, commit)
        pull_counts.add(row.pk, is_view=params["is_view"])
        includes = set(params.get("include") or ())
        has_model = params["include_model"] or "model" in includes
        etag = f'"{row.commit_hash[:32]}{"-model" if has_model else ""}"'
        tags = parse_etags(request.headers.get("If-None-Match", ""))
        if etag in tags or f"W/{etag}" in tags:
            response = Response(status=304)
        else:
            response = Response(_manifest_json(row, has_model=has_model, includes=includes))
        response["ETag"] = etag
        _set_cache_headers(response, is_pinned=commit == row.commit_hash)
        return response


def _find_readable(request: ApiRequest, owner: str, repo: str) -> Repository:
    # An anonymous request has no caller.
    caller = cast("Caller | None", request.auth)
    if caller is not None:
        return find_repository(caller.workspace_id, owner, repo)
    repository = find_published_repository(owner, repo)
    if repository is None:
        raise errors.Unauthenticated
    return repository


def _manifest_json(row: Commit, *, has_model: bool, includes: set[str]) -> dict[str, Any]:
    content: dict[str, Any] = read_manifest(row)
    body: dict[str, Any] = {
        "commit_hash": row.commit_hash,
        "manifest": manifest.with_model(content) if has_model else manifest.prompt_of(content),
        "examples": [],
        "description": row.description or None,
    }
    if has_model:
        body["model_provider"] = manifest.model_class(content)
    if "is_draft" in includes:
        body["is_draft"] = False
    return body


def _set_cache_headers(response: Response, *, is_pinned: bool) -> None:
    """A commit never changes, but what `latest`, a tag or a prefix names does."""
    if is_pinned:
        patch_cache_control(response, private=True, max_age=PINNED_MAX_AGE_SECONDS)
    else:
        patch_cache_control(response, private=True, no_cache=True)
    patch_vary_headers(response, ["X-Api-Key", "X-Tenant-Id", "Authorization", "Cookie"])


class CommitDiffView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[DiffQuerySerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str, commit: str) -> Response:
        """Compare the commit with `base`, by default with its parent."""
        repository = find_repository(self.workspace_id, owner, repo)
        params = query_params(DiffQuerySerializer, request)
        row = find_commit(repository, commit)
        base = find_base(repository, row, params.get("base"))
        before = read_manifest(base) if base is not None else {}
        changes = compare(before, read_manifest(row))
        return Response(
            {
                "commit_hash": row.commit_hash,
                "base_commit_hash": base.commit_hash if base is not None else None,
                "changes": [
                    {
                        "path": change.path,
                        "type": change.kind,
                        "before": change.before,
                        "after": change.after,
                    }
                    for change in changes
                ],
            }
        )


def find_base(repository: Repository, commit: Commit, name: str | None) -> Commit | None:
    """The commit to compare with; None for the first commit without a name."""
    if name is not None:
        return find_commit(repository, name)
    return find_commit(repository, commit.parent_hash) if commit.parent_hash else None


class CommitTagsView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[PageSerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str) -> Response:
        repository = find_repository(self.workspace_id, owner, repo)
        params = query_params(PageSerializer, request)
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response([tag_json(tag) for tag in commit_tags.tags_of(repository)[start:stop]])

    @extend_schema(request=CommitTagSerializer, responses=dict)
    def post(self, request: ApiRequest, owner: str, repo: str) -> Response:
        """Create the tag, or move it: a push sends the same request for each commit."""
        repository = find_own_repository(self.workspace_id, owner, repo)
        params = validate(CommitTagSerializer, request.data)
        tag = commit_tags.set_tag(
            repository=repository,
            name=params["tag_name"],
            commit_id=params["commit_id"],
            author_id=request.auth.user_id,
        )
        return Response(tag_json(tag))


class CommitTagView(WorkspaceAPIView):
    required_permission = PERMISSIONS | {"DELETE": PERMISSIONS["*"]}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str, tag_name: str) -> Response:
        repository = find_repository(self.workspace_id, owner, repo)
        return Response(tag_json(commit_tags.find_tag(repository, tag_name)))

    @extend_schema(request=MoveTagSerializer, responses=dict)
    def patch(self, request: ApiRequest, owner: str, repo: str, tag_name: str) -> Response:
        """Move an existing tag."""
        repository = find_own_repository(self.workspace_id, owner, repo)
        commit_tags.find_tag(repository, tag_name)
        params = validate(MoveTagSerializer, request.data)
        tag = commit_tags.set_tag(
            repository=repository,
            name=tag_name,
            commit_id=params["commit_id"],
            author_id=request.auth.user_id,
        )
        return Response(tag_json(tag))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, owner: str, repo: str, tag_name: str) -> Response:
        repository = find_own_repository(self.workspace_id, owner, repo)
        commit_tags.delete_tag(repository=repository, name=tag_name, author_id=request.auth.user_id)
        return Response(status=204)


class CommitTagHistoryView(WorkspaceAPIView):
    required_permission = PERMISSIONS

    @extend_schema(parameters=[TagHistorySerializer], responses=dict)
    def get(self, request: ApiRequest, owner: str, repo: str, tag_name: str) -> Response:
        """List the moves of a tag, newest first; a deleted tag has a history, too."""
        repository = find_repository(self.workspace_id, owner, repo)
        params = query_params(TagHistorySerializer, request)
        rows = commit_tags.moves_of(repository, tag_name)
        page = list(rows[params["offset"] : params["offset"] + params["limit"]])
        return Response({"transitions": tag_moves_json(page, request.auth), "total": rows.count()})


_COMMITS = "commits/<str:owner>/<str:repo>"
_TAGS = "repos/<str:owner>/<str:repo>/tags"
routes = [
    path(_COMMITS, CommitsView.as_view(), name="commits"),
    path(f"{_COMMITS}/<str:commit>", CommitView.as_view(), name="commit"),
    path(f"{_COMMITS}/<str:commit>/diff", CommitDiffView.as_view(), name="commit-diff"),
    path(_TAGS, CommitTagsView.as_view(), name="commit-tags"),
    path(f"{_TAGS}/<str:tag_name>", CommitTagView.as_view(), name="commit-tag"),
    path(
        f"{_TAGS}/<str:tag_name>/history",
        CommitTagHistoryView.as_view(),
        name="commit-tag-history",
    ),
]
