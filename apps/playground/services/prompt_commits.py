"""Saves the setting of a column as a commit of a prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from django.db import transaction

from apps.core.callers import Caller
from apps.playground.errors import BadSetting
from apps.playground.manifests import build_manifest
from apps.playground.setting import Setting, check_setting, require_model
from apps.prompts.models import Commit
from apps.prompts.services import commit_tags, commits, repositories
from apps.prompts.services.lookup import OWN, find_own_repository

MAX_MESSAGE_LENGTH = 1000
MAX_TAGS = 20


class CommitBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A commit of a column; `parent` is the hash that the author saw, null for a new prompt."""

    repo: str
    setting: Setting
    parent: str | None = None
    message: str = ""
    tags: list[str] = []
    create: bool = False


def commit_setting(*, caller: Caller, body: CommitBody) -> Commit:
    """Commit the setting, to a new prompt if `create` is set, and move the tags to it.

    Raises `BadSetting`, `RepositoryNotFound`, `RepositoryExists`, `StaleParent`,
    `NothingToCommit`, `BadTagName`.
    """
    check_setting(body.setting)
    require_model(body.setting)
    if len(body.message) > MAX_MESSAGE_LENGTH or len(body.tags) > MAX_TAGS:
        raise BadSetting(
            f"A message has at most {MAX_MESSAGE_LENGTH} characters, a commit {MAX_TAGS} tags."
        )
    content = build_manifest(body.setting)
    with transaction.atomic():
        if body.create:
            _check_handle(body.repo)
            repository = repositories.create_repository(
                workspace_id=caller.workspace_id,
                handle=body.repo,
                created_by_id=caller.user_id,
            )
        else:
            repository = find_own_repository(caller.workspace_id, OWN, body.repo)
        commit = commits.create_prompt_commit(
            repository=repository,
            content=content,
            parent=body.parent,
            description=body.message,
            created_by_id=caller.user_id,
        )
        for name in _distinct(body.tags):
            commit_tags.set_tag(
                repository=repository, name=name, commit_id=commit.pk, author_id=caller.user_id
            )
    return commit


def _check_handle(handle: str) -> None:
    is_valid = re.fullmatch(repositories.HANDLE_PATTERN, handle) is not None
    if not is_valid or len(handle) > repositories.MAX_HANDLE_LENGTH:
        raise BadSetting(
            "The name of a prompt starts with a lower-case letter and has only lower-case letters,"
            f" digits, `-` and `_`, at most {repositories.MAX_HANDLE_LENGTH}."
        )


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
