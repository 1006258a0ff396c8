"""Secrets of a workspace: set, listed by name, read by what needs them, never shown."""

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
    """Set these names, and delete those whose value is None. All or nothing."""
    rows = WorkspaceSecret.objects.for_workspace(workspace_id)
    gone = [key for key, value in values.items() if value is None]
    deleted = sorted(rows.filter(key__in=gone).values_list("key", flat=True))
    rows.filter(key__in=gone).delete()
    fresh = [
        WorkspaceSecret(
            workspace_id=workspace_id, key=key, value=encrypt(value), updated_by_id=user_id
        )
        for key, value in values.items()
        if value is not None
    ]
    rows.bulk_create(
        fresh,
        update_conflicts=True,
        unique_fields=["workspace", "key"],
        update_fields=["value", "updated_at", "updated_by"],
    )
    if rows.count() > MAX_SECRETS:
        raise errors.Invalid(f"A workspace has at most {MAX_SECRETS} secrets.")
    for action, names in (
        (Action.SECRET_SET, sorted(row.key for row in fresh)),
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
    """For what signs in to others on the workspace's behalf; None when there is no such secret."""
    row = WorkspaceSecret.objects.for_workspace(workspace_id).filter(key=key).first()
    return None if row is None else decrypt(row.value)
