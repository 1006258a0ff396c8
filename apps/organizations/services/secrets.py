"""Workspace secrets: write-only in the API, decrypted for internal use."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.secrets import decrypt, encrypt
from apps.organizations.models import WorkspaceSecret

MAX_SECRETS = 200
MAX_VALUE_LENGTH = 65_536


@transaction.atomic
def set_secrets(
    *, workspace_id: UUID, values: Mapping[str, str | None], user_id: UUID | None = None
) -> None:
    """Set the secrets, and delete those whose value is None, in one transaction."""
    rows = WorkspaceSecret.objects.for_workspace(workspace_id)
    deleted_keys = [key for key, value in values.items() if value is None]
    deleted = sorted(rows.filter(key__in=deleted_keys).values_list("key", flat=True))
    rows.filter(key__in=deleted_keys).delete()
    new_rows = [
        WorkspaceSecret(
            workspace_id=workspace_id, key=key, value=encrypt(value), updated_by_id=user_id
        )
        for key, value in values.items()
        if value is not None
    ]
    rows.bulk_create(
        new_rows,
        update_conflicts=True,
        unique_fields=["workspace", "key"],
        update_fields=["value", "updated_at", "updated_by"],
    )
    if rows.count() > MAX_SECRETS:
        raise errors.Invalid(
            f"A workspace can have at most {MAX_SECRETS} secrets. Delete unused ones."
        )
    for action, names in (
        (Action.SECRET_SET, sorted(row.key for row in new_rows)),
        (Action.SECRET_DELETED, deleted),
    ):
        if names:
            record(
                action,
                Target("secret", name=", ".join(names)),
                after={"names": names},
                workspace_id=workspace_id,
            )


def secret_value(workspace_id: UUID, key: str) -> str | None:
    """Return the decrypted secret, or None if it does not exist."""
    row = WorkspaceSecret.objects.for_workspace(workspace_id).filter(key=key).first()
    return None if row is None else decrypt(row.value)
