"""The operator's own key: issued once and kept beside the installation's other secrets.

The database holds only hashes, so a key that `manage.py bootstrap` is to print again must be kept
somewhere: in a file of the data folder that only its owner can read.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from apps.api_keys.models import ApiKey
from apps.api_keys.services import digest, issue_key
from apps.organizations.models import User, Workspace


def operator_key(*, workspace: Workspace, owner: User, fresh: bool) -> str:
    """The workspace's kept key while it is valid, else a new one; always a new one if `fresh`."""
    folder = Path(settings.DATA_DIR) / "secrets"
    path = folder / f"api_key-{workspace.pk}"
    if not fresh and path.exists():
        kept = path.read_text().strip()
        row = ApiKey.objects.filter(digest=digest(kept), workspace=workspace).first()
        if row is not None and row.is_live:
            return kept
    _, secret = issue_key(
        organization=workspace.organization,
        workspace=workspace,
        name="Bootstrap",
        scopes=["admin"],
        created_by=owner,
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".api_key.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(secret)
    draft.replace(path)
    return secret
