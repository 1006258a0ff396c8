"""Members of an organization and its workspaces: add, change role, remove, transfer ownership.

Changes of organization roles lock the organization's row, so that two owners cannot
leave at the same time. A PostgreSQL trigger also requires an owner at the end of each transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import Caller, OrganizationCaller
from apps.organizations import hooks
from apps.organizations.errors import AlreadyMember, LastOwner
from apps.organizations.models import (
    ROLE_FIELDS,
    Membership,
    Organization,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.services.roles import AnyRole, check_grant

OWNER = "owner"


@transaction.atomic
def change_role(
    *, membership: Membership, role: AnyRole, by: OrganizationCaller | None = None
) -> Membership:
    """Change a member's role. Raises `LastOwner` for the only owner."""
    row = _lock_membership(membership)
    before = row.held_role
    check_grant(by, before, role)
    if before.display_name == role.display_name and before.id == role.id:
        return row
    _require_other_owner(row)
    row.hold(role)
    row.save(update_fields=ROLE_FIELDS)
    record(
        Action.MEMBER_ROLE_CHANGED,
        audit_target(row),
        before={"role": before.display_name},
        after={"role": role.display_name},
        organization_id=row.organization_id,
    )
    return row


@transaction.atomic
def remove_member(*, membership: Membership, by: OrganizationCaller | None = None) -> None:
    """Remove a member from the organization and its workspaces; revokes their personal keys."""
    row = _lock_membership(membership)
    is_own = by is not None and by.user_id == row.user_id
    if not is_own:
        check_grant(by, row.held_role)
    _remove(row, Action.MEMBER_LEFT if is_own else Action.MEMBER_REMOVED)


@transaction.atomic
def leave(*, organization_id: UUID, user: User) -> None:
    """Remove the user at their own request. Raises `LastOwner` for the only owner."""
    membership = Membership.objects.filter(organization_id=organization_id, user=user).first()
    if membership is None:
        raise core_errors.NotFound
    _remove(_lock_membership(membership), Action.MEMBER_LEFT)


@transaction.atomic
def transfer_ownership(*, organization_id: UUID, owner: User, to: Membership) -> None:
    """Make another member an owner and the current owner an admin."""
    if to.organization_id != organization_id:
        raise core_errors.NotFound
    new_owner = _lock_membership(to)
    memberships = Membership.objects.filter(organization_id=organization_id, role=OWNER)
    owner_membership = memberships.filter(user=owner).first()
    if owner_membership is None:
        raise core_errors.Forbidden("Only an owner can transfer ownership of the organization.")
    if owner_membership.pk == new_owner.pk:
        raise core_errors.Conflict("You are already the owner.")
    memberships.model.objects.filter(pk=new_owner.pk).update(role=OWNER, custom_role=None)
    memberships.filter(pk=owner_membership.pk).update(role="admin")
    organization = new_owner.organization
    record(
        Action.OWNERSHIP_TRANSFERRED,
        Target("organization", organization.pk, organization.name),
        before={"owner": owner.email},
        after={"owner": new_owner.user.email},
        organization_id=organization_id,
    )


def _lock_membership(membership: Membership) -> Membership:
    """Return the current row, with the organization locked against other role changes."""
    Organization.objects.select_for_update(no_key=True).get(pk=membership.organization_id)
    rows = Membership.objects.select_related("user", "custom_role", "organization")
    row = rows.filter(pk=membership.pk).first()
    if row is None:
        raise core_errors.NotFound
    return row


def _require_other_owner(membership: Membership) -> None:
    if membership.role != OWNER:
        return
    owners = Membership.objects.filter(
        organization_id=membership.organization_id, role=OWNER, user__is_active=True
    )
    if not owners.exclude(pk=membership.pk).exists():
        raise LastOwner


def _remove(membership: Membership, action: Action) -> None:
    _require_other_owner(membership)
    WorkspaceMembership.objects.filter(
        user_id=membership.user_id, workspace__organization_id=membership.organization_id
    ).delete()
    hooks.member_removed(membership.organization_id, membership.user_id)
    record(
        action,
        audit_target(membership),
        before={"email": membership.user.email, "role": membership.held_role.display_name},
        organization_id=membership.organization_id,
    )
    membership.delete()


def audit_target(membership: Membership) -> Target:
    return Target("member", membership.pk, membership.user.email)


@transaction.atomic
def add_to_workspace(
    *, workspace: Workspace, user: User, role: AnyRole, by: Caller | None = None
) -> WorkspaceMembership:
    """Add an organization member to the workspace. Raises `NotFound` for other users."""
    check_grant(by, role)
    memberships = Membership.objects.filter(organization_id=workspace.organization_id, user=user)
    # Lock the membership until the insert, so that it is not removed in between.
    if not memberships.select_for_update(no_key=True).exists():
        raise core_errors.NotFound("Not an organization member. Invite them first.")
    membership = WorkspaceMembership(workspace=workspace, user=user)
    membership.hold(role)
    try:
        with transaction.atomic():
            membership.save(force_insert=True)
    except IntegrityError:
        raise AlreadyMember from None
    _record_in_workspace(Action.MEMBER_ADDED, membership, after=_audit_values(membership))
    return membership


@transaction.atomic
def change_workspace_role(
    *, membership: WorkspaceMembership, role: AnyRole, by: Caller | None = None
) -> WorkspaceMembership:
    row = _lock_workspace_membership(membership)
    check_grant(by, row.held_role, role)
    before = _audit_values(row)
    row.hold(role)
    row.save(update_fields=ROLE_FIELDS)
    if (after := _audit_values(row)) != before:
        _record_in_workspace(Action.MEMBER_ROLE_CHANGED, row, before=before, after=after)
    return row


@transaction.atomic
def remove_from_workspace(*, membership: WorkspaceMembership, by: Caller | None = None) -> None:
    """Remove a member, or let them leave."""
    row = _lock_workspace_membership(membership)
    is_own = by is not None and by.user_id == row.user_id
    if not is_own:
        check_grant(by, row.held_role)
    _record_in_workspace(
        Action.MEMBER_LEFT if is_own else Action.MEMBER_REMOVED, row, before=_audit_values(row)
    )
    row.delete()


def _lock_workspace_membership(membership: WorkspaceMembership) -> WorkspaceMembership:
    rows = WorkspaceMembership.objects.select_for_update(no_key=True, of=("self",))
    rows = rows.select_related("user", "custom_role", "workspace")
    row = rows.filter(pk=membership.pk).first()
    if row is None:
        raise core_errors.NotFound
    return row


def _audit_values(membership: WorkspaceMembership) -> dict[str, object]:
    return {
        "email": membership.user.email,
        "workspace_role": membership.held_role.display_name,
    }


def _record_in_workspace(
    action: Action,
    membership: WorkspaceMembership,
    *,
    before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> None:
    record(
        action,
        Target("member", membership.pk, membership.user.email),
        before=before,
        after=after,
        organization_id=membership.workspace.organization_id,
        workspace_id=membership.workspace_id,
    )


def record_user_action(
    action: Action,
    user: User,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an action on the user in the log of each of their organizations.

    For a user without an organization it records one entry without an organization.
    """
    rows = Membership.objects.filter(user=user).order_by("organization_id")
    organization_ids: list[UUID | None] = [*rows.values_list("organization_id", flat=True)]
    target = Target("user", user.pk, user.email)
    for organization_id in organization_ids or [None]:
        record(action, target, organization_id=organization_id, before=before, after=after)


@transaction.atomic
def update_profile(*, user_id: UUID, **fields: str) -> User:
    """Change the user's `name` or `time_zone`."""
    user = User.objects.select_for_update(no_key=True).get(pk=user_id)
    before = {name: getattr(user, name) for name in fields if getattr(user, name) != fields[name]}
    if before:
        after = {name: fields[name] for name in before}
        for name, value in after.items():
            setattr(user, name, value)
        user.save(update_fields=list(after))
        record_user_action(Action.USER_UPDATED, user, before=before, after=after)
    return user
