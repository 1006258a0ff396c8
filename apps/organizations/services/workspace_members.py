"""Members of a workspace, who are members of its organization."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import Caller
from apps.organizations.errors import AlreadyMember
from apps.organizations.models import (
    ROLE_FIELDS,
    Membership,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.services.roles import AnyRole, check_grant


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
    _record(Action.MEMBER_ADDED, membership, after=_audit_values(membership))
    return membership


@transaction.atomic
def change_workspace_role(
    *, membership: WorkspaceMembership, role: AnyRole, by: Caller | None = None
) -> WorkspaceMembership:
    row = _lock_membership(membership)
    check_grant(by, row.held_role, role)
    before = _audit_values(row)
    row.hold(role)
    row.save(update_fields=ROLE_FIELDS)
    if (after := _audit_values(row)) != before:
        _record(Action.MEMBER_ROLE_CHANGED, row, before=before, after=after)
    return row


@transaction.atomic
def remove_from_workspace(*, membership: WorkspaceMembership, by: Caller | None = None) -> None:
    """Remove a member, or let them leave."""
    row = _lock_membership(membership)
    is_own = by is not None and by.user_id == row.user_id
    if not is_own:
        check_grant(by, row.held_role)
    _record(Action.MEMBER_LEFT if is_own else Action.MEMBER_REMOVED, row, before=_audit_values(row))
    row.delete()


def _lock_membership(membership: WorkspaceMembership) -> WorkspaceMembership:
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


def _record(
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
