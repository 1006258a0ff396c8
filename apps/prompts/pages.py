"""Data of the prompt pages, each in a fixed number of queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.organizations.models import User
from apps.prompts.messages import PromptView, present
from apps.prompts.models import Commit, Repository, RepositoryType, TagMove
from apps.prompts.services import commit_tags
from apps.prompts.services.lookup import commits_of, find_commit, read_manifest
from apps.trace_store import NO_PAYLOADS, RunQuery, RunRow, run_store
from apps.trace_store.filters.builders import metadata_filter
from apps.web_ui.text_diff import TextDiff, compare_texts

PAGE_SIZE = 50
RUN_DAYS = 30
"""The period in which the runs of a prompt are looked up."""
TABS = (RepositoryType.PROMPT, RepositoryType.AGENT, RepositoryType.SKILL)


@dataclass(frozen=True)
class CommitRow:
    commit: Commit
    author: str
    tags: Sequence[str]


@dataclass(frozen=True)
class PromptPage:
    """A repository at one commit."""

    repository: Repository
    commit: Commit | None
    view: PromptView | None
    files: Sequence[tuple[str, str]]
    """Path and content of each file of a directory; links are shown as JSON."""
    manifest: str


def load_list(workspace_id: UUID, *, text: str, kind: str, offset: int) -> list[Repository]:
    """One page of repositories, and one more if there is a next page."""
    rows = Repository.objects.for_workspace(workspace_id).filter(type=kind)
    rows = rows.matching(text, by_prefix=True) if text else rows.filter(is_archived=False)
    rows = rows.select_related("head").defer("head__manifest").prefetch_related("commit_tags")
    return list(rows.order_by("-updated_at", "pk")[offset : offset + PAGE_SIZE + 1])


def load_prompt(repository: Repository, name: str) -> PromptPage:
    """The repository at the named commit; without commits both are None."""
    if repository.head_id is None and name in {"", "latest"}:
        return PromptPage(repository, None, None, (), "")
    commit = find_commit(repository, name)
    content = read_manifest(commit)
    if repository.is_directory:
        files = [(path, _file_text(entry)) for path, entry in sorted(content.items())]
        return PromptPage(repository, commit, None, files, "")
    text = json.dumps(content, indent=2, ensure_ascii=False)
    return PromptPage(repository, commit, present(content), (), text)


def _file_text(entry: Any) -> str:
    if entry["type"] == "file":
        return str(entry["content"])
    return json.dumps(entry, indent=2)


def load_history(repository: Repository, offset: int = 0) -> list[CommitRow]:
    """One page of commits, newest first, and one more if there is a next page."""
    rows = commits_of(repository).without_manifest().newest_first()
    commits = list(rows[offset : offset + PAGE_SIZE + 1])
    authors = _load_names(row.created_by_id for row in commits)
    tags: dict[UUID, list[str]] = {}
    for tag in commit_tags.tags_of(repository):
        tags.setdefault(tag.commit_id, []).append(tag.name)
    return [
        CommitRow(
            row,
            authors.get(row.created_by_id, "") if row.created_by_id else "",
            tags.get(row.pk, []),
        )
        for row in commits
    ]


def _load_names(user_ids: Iterable[UUID | None]) -> dict[UUID, str]:
    known_ids = {user_id for user_id in user_ids if user_id is not None}
    return {user.pk: user.display_name for user in User.objects.filter(pk__in=known_ids)}


def load_tag_moves(repository: Repository, name: str, offset: int) -> list[tuple[TagMove, str]]:
    """One page of the tag's moves with the names of their authors, and one more if there is more.

    Raises `TagNotFound` for a name that was never a tag.
    """
    rows = commit_tags.moves_of(repository, name)
    moves = list(rows[offset : offset + PAGE_SIZE + 1])
    authors = _load_names(move.moved_by_id for move in moves)
    return [(move, authors.get(move.moved_by_id, "") if move.moved_by_id else "") for move in moves]


def load_diff(
    base: Commit | None, commit: Commit, *, is_directory: bool
) -> list[tuple[str, TextDiff]]:
    """The differences of two commits: of the messages and of the rest, or of each file."""
    before = read_manifest(base) if base is not None else {}
    after = read_manifest(commit)
    if is_directory:
        paths = sorted({*before, *after})
        texts = [
            (
                path,
                _file_text(before[path]) if path in before else "",
                _file_text(after[path]) if path in after else "",
            )
            for path in paths
        ]
        diffs = [(path, compare_texts(old, new)) for path, old, new in texts]
        return [(path, diff) for path, diff in diffs if not diff.is_equal]
    old_text = present(before).as_text if before else ""
    return [
        ("Messages", compare_texts(old_text, present(after).as_text)),
        ("Manifest", compare_texts(_indented(before), _indented(after))),
    ]


def _indented(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) if content else ""


def load_runs(
    repository: Repository, commit_hash: str | None, cursor: str | None
) -> tuple[list[RunRow], str | None]:
    """The runs of the last days whose metadata names the prompt, newest first."""
    metadata = {"lc_hub_repo": repository.handle}
    if commit_hash:
        metadata["lc_hub_commit_hash"] = commit_hash
    query = RunQuery(
        started_from=timezone.now() - timedelta(days=RUN_DAYS), where=metadata_filter(metadata)
    )
    page = run_store.query(
        repository.workspace_id, query, limit=PAGE_SIZE, cursor=cursor, payloads=NO_PAYLOADS
    )
    return [run.row for run in page.runs], page.next_cursor


def snippets(repository: Repository, commit_name: str, api_url: str) -> list[tuple[str, str]]:
    """Caption and code that pulls the commit with each client."""
    name = repository.handle if commit_name == "latest" else f"{repository.handle}:{commit_name}"
    if repository.is_directory:
        kind = str(repository.type)
        return [
            (
                "Python",
                (
                    f'from langsmith import Client\n\nclient = Client(api_url="{api_url}")\n'
                    f'{kind} = client.pull_{kind}("{name}")\nprint(list({kind}.files))'
                ),
            ),
            (
                "JavaScript",
                (
                    f'import {{ Client }} from "langsmith";\n\n'
                    f'const client = new Client({{ apiUrl: "{api_url}" }});\n'
                    f'const {kind} = await client.pull{kind.capitalize()}("{name}");'
                ),
            ),
        ]
    return [
        (
            "Python",
            (
                f'from langsmith import Client\n\nclient = Client(api_url="{api_url}")\n'
                f'prompt = client.pull_prompt("{name}")'
            ),
        ),
        (
            "JavaScript",
            (
                f'import {{ Client }} from "langsmith";\n'
                f'import {{ load }} from "@langchain/core/load";\n\n'
                f'const client = new Client({{ apiUrl: "{api_url}" }});\n'
                f'const commit = await client.pullPromptCommit("{name}");\n'
                f"const prompt = await load(JSON.stringify(commit.manifest));"
            ),
        ),
        (
            "curl",
            (
                f'curl -H "X-Api-Key: $LANGSMITH_API_KEY" \\\n'
                f"  {api_url}/commits/-/{repository.handle}/{commit_name}"
            ),
        ),
    ]
