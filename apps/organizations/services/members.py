"""Members of an organization: add, change role, remove, leave, transfer ownership.

Role changes lock the organization's row, so that of two owners who leave at once one remains. A
PostgreSQL trigger checks the same at the end of each transaction.
"""

from __future__ import annotations

from uuid import UUID

from django.db import IntegrityError, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import OrganizationCaller
from apps.organizations import hooks
from apps.organizations.errors import AlreadyMember, LastOwner
from apps.organizations.models import (
    ROLE_FIELDS,
    Membership,
    Organization,
    User,
    WorkspaceMembership,
)
from apps.organizations.services.roles import AnyRole, check_grant

OWNER = "owner"


@transaction.atomic
def add_member(
    *, organization_id: UUID, user: User, role: AnyRole, by: OrganizationCaller | None = None
) -> Membership:
    """Add a user. Raises `AlreadyMember` for a member."""
    check_grant(by, role)
    membership = Membership(organization_id=organization_id, user=user)
    membership.hold(role)
    try:
        with transaction.atomic():
            membership.save(force_insert=True)
    except IntegrityError:
        raise AlreadyMember from None
    record(
        Action.MEMBER_ADDED,
        audit_target(membership),
        after={"email": user.email, "role": role.display_name},
        organization_id=organization_id,
    )
    return membership


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
    own = memberships.filter(user=owner).first()
    if own is None:
        raise core_errors.Forbidden("Only an owner can transfer ownership of the organization.")
    if own.pk == new_owner.pk:
        raise core_errors.Conflict("You are already the owner.")
    memberships.model.objects.filter(pk=new_owner.pk).update(role=OWNER, custom_role=None)
    memberships.filter(pk=own.pk).update(role="admin")
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
