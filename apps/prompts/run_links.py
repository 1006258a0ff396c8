"""The link from a run to the prompt commit that it used.

The Python client adds the names of a pulled prompt to the metadata of the runs of its chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from apps.prompts.models import HASH_LENGTH, Commit
from apps.prompts.services.lookup import OWN
from apps.tracing.hooks import PromptLink


def find_prompt_link(workspace_id: UUID, metadata: Mapping[str, Any]) -> PromptLink | None:
    """Return the link to a commit of the workspace; prompts of others have no page here."""
    names = (metadata.get(f"lc_hub_{name}") for name in ("owner", "repo", "commit_hash"))
    owner, handle, commit_hash = names
    if not (isinstance(handle, str) and isinstance(commit_hash, str)):
        return None
    if len(commit_hash) != HASH_LENGTH or "\0" in handle + commit_hash:
        return None
    rows = Commit.objects.for_workspace(workspace_id).without_manifest()
    rows = rows.filter(repository__handle=handle, commit_hash=commit_hash)
    commit = rows.select_related("repository__workspace").first()
    if commit is None or owner not in (None, OWN, commit.repository.workspace.handle):
        return None
    url = reverse("prompt-detail", args=[workspace_id, handle])
    return PromptLink(
        label=f"{handle}:{commit_hash[:8]}",
        url=f"{url}?{urlencode({'commit': commit_hash[:12]})}",
    )
