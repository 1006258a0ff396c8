"""Making, changing and deleting workspaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import OrganizationCaller
from apps.organizations import hooks
from apps.organizations.errors import HandleTaken, LastWorkspace, WorkspaceNameTaken
from apps.organizations.models import (
    InvitationWorkspace,
    Organization,
    TagKey,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import OrganizationPermission

FIRST_TAG_KEYS = {
    "Application": "What the thing is a part of",
    "Environment": "Where it runs, such as staging or production",
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
    """A new workspace; the person who makes it is its admin.

    A repeat with the same client-sent id returns what is there; a taken name or handle is refused.
    """
    if workspace_id is not None:
        there = Workspace.objects.present().filter(pk=workspace_id, organization_id=organization_id)
        if (found := there.first()) is not None:
            return found
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
    """The row and what every workspace begins with: its tag keys, and what other apps put there."""
    workspace = Workspace(organization=organization, name=name, handle=handle)
    if workspace_id is not None:
        workspace.pk = workspace_id
    _saved(workspace)
    TagKey.objects.for_workspace(workspace).bulk_create(
        TagKey(workspace=workspace, key=key, description=description)
        for key, description in FIRST_TAG_KEYS.items()
    )
    hooks.workspace_created(workspace)
    record(
        Action.WORKSPACE_CREATED,
        _target(workspace),
        after=_told(workspace),
        organization_id=organization.pk,
        workspace_id=workspace.pk,
    )
    return workspace


@transaction.atomic
def update_workspace(*, workspace: Workspace, changes: Mapping[str, Any]) -> Workspace:
    """Set `name` or `handle` and return the workspace."""
    row = Workspace.objects.present().select_for_update(no_key=True).get(pk=workspace.pk)
    before = _told(row)
    if "handle" in changes:
        row.handle = validate_handle(changes["handle"])
    if "name" in changes:
        row.name = changes["name"]
    _saved(row, fields=["name", "handle"])
    if (after := _told(row)) != before:
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
    """Nobody can enter any more, its agents stop, and its data goes soon after. Safe to repeat.

    The row stays, so that what happened here can still be told. The last workspace of an
    organization cannot go.
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
        before=_told(workspace),
        organization_id=workspace.organization_id,
        workspace_id=workspace.pk,
    )


def validate_handle(handle: str | None) -> str | None:
    """The handle as it is kept; None or nothing takes it away."""
    if not handle:
        return None
    if _HANDLE.fullmatch(handle) is None:
        raise core_errors.Invalid(
            "A handle has 3 to 40 small letters, digits and dashes, and begins with a letter.",
            [{"field": "tenant_handle", "message": "not a handle"}],
        )
    return handle


def _saved(workspace: Workspace, fields: list[str] | None = None) -> None:
    try:
        with transaction.atomic():
            workspace.save(force_insert=fields is None, update_fields=fields)
    except IntegrityError as error:
        if "handle" in str(error):
            raise HandleTaken from None
        if "workspace_name_once" in str(error):
            raise WorkspaceNameTaken from None
        # The id is taken, perhaps by somebody else: say no more than that.
        raise core_errors.Conflict("A workspace of that id already exists.") from None


def _target(workspace: Workspace) -> Target:
    return Target("workspace", workspace.pk, workspace.name)


def _told(workspace: Workspace) -> dict[str, Any]:
    return {"name": workspace.name, "handle": workspace.handle}
