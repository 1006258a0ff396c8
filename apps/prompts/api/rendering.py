"""JSON of repositories, commits and tags."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from apps.core.callers import Caller
from apps.organizations.models import User
from apps.prompts import manifest
from apps.prompts.models import Commit, CommitTag, Repository, TagMove
from apps.prompts.services import repositories


def repository_list_json(
    rows: Sequence[Repository],
    caller: Caller,
    *,
    with_owners: bool = False,
    with_manifest: bool = False,
) -> list[dict[str, Any]]:
    """Render repositories that were loaded with workspace, head and `commit_tags`."""
    liked = repositories.liked_ids(caller, rows)
    own = [row for row in rows if row.workspace_id == caller.workspace_id]
    users = _load_users(row.created_by_id for row in own) if with_owners else {}
    rendered = []
    for row in rows:
        item = _repository_json(row, is_liked=row.pk in liked)
        if row.workspace_id != caller.workspace_id:
            item["created_by"] = None
        if with_owners:
            item["owners"] = (
                [_owner_json(users[row.created_by_id])] if (row.created_by_id in users) else []
            )
        if with_manifest and row.head is not None:
            item["latest_commit_manifest"] = {
                "commit_hash": row.head.commit_hash,
                "manifest": manifest.prompt_of(row.head.manifest),
                "examples": [],
            }
        rendered.append(item)
    return rendered


def repository_json(row: Repository, caller: Caller) -> dict[str, Any]:
    return repository_list_json([row], caller, with_owners=True)[0]


def _repository_json(row: Repository, *, is_liked: bool) -> dict[str, Any]:
    return {
        "id": row.pk,
        "tenant_id": row.workspace_id,
        "repo_handle": row.handle,
        "repo_type": row.type,
        "description": row.description,
        "readme": row.readme,
        "tags": row.tags,
        "owner": row.workspace.handle,
        "full_name": row.full_name,
        "is_public": row.is_public,
        "is_archived": row.is_archived,
        "restricted_mode": False,
        "source": "internal",
        "num_likes": row.num_likes,
        "num_downloads": row.num_downloads,
        "num_views": row.num_views,
        "num_commits": row.num_commits,
        "liked_by_auth_user": is_liked,
        "last_commit_hash": row.head.commit_hash if row.head is not None else None,
        "commit_tags": sorted(tag.name for tag in row.commit_tags.all()),
        "created_by": row.created_by_id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "original_repo_id": None,
        "original_repo_full_name": None,
        "upstream_repo_id": None,
        "upstream_repo_full_name": None,
        "owners": None,
        "latest_commit_manifest": None,
    }


def _owner_json(user: User) -> dict[str, Any]:
    return {
        "ls_user_id": user.pk,
        "identity_id": None,
        "email": user.email,
        "full_name": user.display_name,
        "created_at": user.created_at,
    }


def _load_users(ids: Collection[UUID | None] | Any) -> dict[UUID | None, User]:
    known_ids = {id_ for id_ in ids if id_ is not None}
    return {user.pk: user for user in User.objects.filter(pk__in=known_ids)} if known_ids else {}


def author_names(commits: Sequence[Commit], caller: Caller) -> dict[UUID | None, str]:
    """The authors' names; none for callers of other workspaces."""
    own = [row.created_by_id for row in commits if row.workspace_id == caller.workspace_id]
    return {id_: user.display_name for id_, user in _load_users(own).items()}


def commit_json(
    commit: Commit,
    names: Mapping[UUID | None, str],
    *,
    content: Mapping[str, Any] | None = None,
    with_stats: bool = True,
) -> dict[str, Any]:
    return {
        "id": commit.pk,
        "repo_id": commit.repository_id,
        "parent_id": commit.parent_id,
        "parent_commit_hash": commit.parent_hash or None,
        "commit_hash": commit.commit_hash,
        "manifest": content,
        "manifest_sha": manifest.as_base64(commit.manifest_hash),
        "description": commit.description or None,
        "full_name": names.get(commit.created_by_id),
        "example_run_ids": [],
        "num_downloads": commit.num_downloads if with_stats else None,
        "num_views": commit.num_views if with_stats else None,
        "created_at": commit.created_at,
        "updated_at": commit.created_at,
    }


def tag_json(tag: CommitTag) -> dict[str, Any]:
    return {
        "id": tag.pk,
        "repo_id": tag.repository_id,
        "commit_id": tag.commit_id,
        "commit_hash": tag.commit.commit_hash,
        "tag_name": tag.name,
        "created_at": tag.created_at,
        "updated_at": tag.updated_at,
    }


def tag_moves_json(moves: Sequence[TagMove], caller: Caller) -> list[dict[str, Any]]:
    """Render moves that were loaded with their commits; persons only for the own workspace."""
    own = [move.moved_by_id for move in moves if move.workspace_id == caller.workspace_id]
    users = _load_users(own)
    return [
        {
            "id": move.pk,
            "repo_id": move.repository_id,
            "tag_name": move.tag_name,
            "from_commit_id": move.from_commit_id,
            "from_commit_hash": move.from_commit.commit_hash if move.from_commit else None,
            "to_commit_id": move.to_commit_id,
            "to_commit_hash": move.to_commit.commit_hash if move.to_commit else None,
            "performed_by": move.moved_by_id if move.moved_by_id in users else None,
            "performed_by_name": users[move.moved_by_id].display_name
            if move.moved_by_id in users
            else None,
            "created_at": move.created_at,
        }
        for move in moves
    ]
