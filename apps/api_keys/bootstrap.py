"""The operator's key, which `manage.py bootstrap` prints.

The database has only hashes, so the key is stored in a file in DATA_DIR that only its owner reads.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from apps.api_keys.models import ApiKey
from apps.api_keys.services import digest, issue_key
from apps.organizations.models import User, Workspace


def operator_key(*, workspace: Workspace, owner: User, force_new: bool) -> str:
    """Return the stored key of the workspace, or issue a new one if invalid or `force_new`."""
    folder = Path(settings.DATA_DIR) / "secrets"
    path = folder / f"api_key-{workspace.pk}"
    if not force_new and path.exists():
        stored = path.read_text().strip()
        row = ApiKey.objects.filter(digest=digest(stored), workspace=workspace).first()
        if row is not None and row.is_live:
            return stored
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
