"""Creation, changes and deletion of workspaces."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from secrets import token_hex
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django.utils.text import slugify

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import OrganizationCaller
from apps.core.secrets import decrypt, encrypt
from apps.organizations import hooks
from apps.organizations.errors import HandleTaken, LastWorkspace, WorkspaceNameTaken
from apps.organizations.models import (
    InvitationWorkspace,
    Organization,
    TagKey,
    Workspace,
    WorkspaceMembership,
    WorkspaceSecret,
)
from apps.organizations.permissions import OrganizationPermission

MAX_SECRETS = 200
MAX_SECRET_LENGTH = 65_536

DEFAULT_TAG_KEYS = {
    "Application": "The application that the resource belongs to",
    "Environment": "The environment, such as staging or production",
}
_HANDLE = re.compile(r"[a-z][a-z0-9-]{1,38}[a-z0-9]")


@transaction.atomic
def create_workspace(
    *,
    organization_id: UUID,
    name: str,
    handle: str | None = None,
    workspace_id: UUID | None = None,
    by: OrganizationCaller | None = None,
) -> Workspace:
    """Create a workspace with the calling user as its admin.

    Without a handle it gets a free one that resembles its name. Repeating with the same client-sent
    id returns the existing one. Raises `WorkspaceNameTaken` or `HandleTaken`.
    """
    if workspace_id is not None:
        existing = Workspace.objects.present().filter(
            pk=workspace_id, organization_id=organization_id
        )
        if (workspace := existing.first()) is not None:
            return workspace
    workspace = insert_workspace(
        organization=Organization.objects.get(pk=organization_id),
        name=name,
        handle=validate_handle(handle),
        workspace_id=workspace_id,
    )
    if by is not None and by.user_id is not None and not _administers(by):
        WorkspaceMembership.objects.create(workspace=workspace, user_id=by.user_id, role="admin")
    return workspace


def _administers(by: OrganizationCaller) -> bool:
    return by.may(OrganizationPermission.WORKSPACES_ADMINISTER)


@transaction.atomic
def insert_workspace(
    *,
    organization: Organization,
    name: str,
    handle: str | None = None,
    workspace_id: UUID | None = None,
) -> Workspace:
    """Insert the row with its default tag keys, and run the `workspace_created` hook.

    The first workspace of an organization is called like all others', so a handle that is not
    given resembles the organization's name there.
    """
    is_first = not organization.workspaces.exists()
    workspace = Workspace(organization=organization, name=name, handle=handle)
    if workspace_id is not None:
        workspace.pk = workspace_id
    if handle is None:
        _save_with_free_handle(workspace, organization.name if is_first else name)
    else:
        _save(workspace)
    TagKey.objects.for_workspace(workspace).bulk_create(
        TagKey(workspace=workspace, key=key, description=description)
        for key, description in DEFAULT_TAG_KEYS.items()
    )
    hooks.workspace_created(workspace)
    record(
        Action.WORKSPACE_CREATED,
        _target(workspace),
        after=_audit_values(workspace),
        organization_id=organization.pk,
        workspace_id=workspace.pk,
    )
    return workspace


@transaction.atomic
def update_workspace(*, workspace: Workspace, changes: Mapping[str, Any]) -> Workspace:
    """Update `name` or `handle`."""
    row = Workspace.objects.present().select_for_update(no_key=True).get(pk=workspace.pk)
    before = _audit_values(row)
    if "handle" in changes:
        row.handle = validate_handle(changes["handle"])
    if "name" in changes:
        row.name = changes["name"]
    _save(row, fields=["name", "handle"])
    if (after := _audit_values(row)) != before:
        record(
            Action.WORKSPACE_UPDATED,
            _target(row),
            before=before,
            after=after,
            organization_id=row.organization_id,
            workspace_id=row.pk,
        )
    return row


@transaction.atomic
def delete_workspace(*, workspace: Workspace) -> None:
    """End access, stop the agents and schedule the deletion of the data. Safe to repeat.

    The row remains for the audit log. Raises `LastWorkspace` for the organization's only one.
    """
    organization = Organization.objects.select_for_update(no_key=True)
    organization.get(pk=workspace.organization_id)
    present = Workspace.objects.present().filter(organization_id=workspace.organization_id)
    if not present.filter(pk=workspace.pk).exists():
        return
    if present.count() == 1:
        raise LastWorkspace
    hooks.workspace_deleted(workspace)
    InvitationWorkspace.objects.filter(workspace=workspace).delete()
    WorkspaceMembership.objects.filter(workspace=workspace).delete()
    present.filter(pk=workspace.pk).update(deleted_at=timezone.now(), handle=None)
    record(
        Action.WORKSPACE_DELETED,
        _target(workspace),
        before=_audit_values(workspace),
        organization_id=workspace.organization_id,
        workspace_id=workspace.pk,
    )


def validate_handle(handle: str | None) -> str | None:
    """Return the handle to store; None or an empty string removes it."""
    if not handle:
        return None
    if _HANDLE.fullmatch(handle) is None:
        raise core_errors.Invalid(
            "`tenant_handle` must have 3 to 40 lower-case letters, digits and dashes, and start"
            " with a letter.",
            [{"field": "tenant_handle", "message": "Invalid handle."}],
        )
    return handle


def _save_with_free_handle(workspace: Workspace, text: str) -> None:
    """Clients do not publish prompts of a workspace without a handle, so each starts with one."""
    words = slugify(text).replace("_", "-").lstrip("-0123456789")
    slug = words[:33].rstrip("-")
    workspace.handle = slug if len(slug) >= 3 else f"workspace-{token_hex(3)}"
    try:
        _save(workspace)
    except HandleTaken:
        workspace.handle = f"{slug or 'workspace'}-{token_hex(3)}"
        _save(workspace)


def _save(workspace: Workspace, fields: list[str] | None = None) -> None:
    try:
        with transaction.atomic():
            workspace.save(force_insert=fields is None, update_fields=fields)
    except IntegrityError as error:
        if "handle" in str(error):
            raise HandleTaken from None
        if "workspace_name_once" in str(error):
            raise WorkspaceNameTaken from None
        # The id may belong to another organization, so the message gives no details.
        raise core_errors.Conflict("A workspace with this id already exists.") from None


def _target(workspace: Workspace) -> Target:
    return Target("workspace", workspace.pk, workspace.name)


def _audit_values(workspace: Workspace) -> dict[str, Any]:
    return {"name": workspace.name, "handle": workspace.handle}


@transaction.atomic
def set_secrets(
    *, workspace_id: UUID, values: Mapping[str, str | None], user_id: UUID | None = None
) -> None:
    """Set the secrets, and delete those whose value is None, in one transaction.

    The API lists only names; `secret_value` decrypts a value for internal use. Raises what the
    `secrets_changing` hooks raise.
    """
    _lock_secrets(workspace_id)
    hooks.secrets_changing(workspace_id, values)
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
        raise core_errors.Invalid(
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


def _lock_secrets(workspace_id: UUID) -> None:
    """Let one transaction at a time check and change the secrets of the workspace."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"secrets of workspace {workspace_id}"],
        )


def secret_value(workspace_id: UUID, key: str) -> str | None:
    """Return the decrypted secret, or None if it does not exist."""
    row = WorkspaceSecret.objects.for_workspace(workspace_id).filter(key=key).first()
    return None if row is None else decrypt(row.value)


def secret_values(workspace_id: UUID, keys: Collection[str]) -> dict[str, str]:
    """Return the decrypted secrets that exist, in one query."""
    rows = WorkspaceSecret.objects.for_workspace(workspace_id).filter(key__in=keys)
    return {row.key: decrypt(row.value) for row in rows}
