"""People of an organization: adding, changing, removing, leaving, handing over.

Whoever changes who may do what holds the organization's row, so that of two owners who leave at the
same moment one stays. PostgreSQL checks the same at the end of each transaction.
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
from apps.organizations.services.grants import AnyRole, check_grant

OWNER = "owner"


@transaction.atomic
def add_member(
    *, organization_id: UUID, user: User, role: AnyRole, by: OrganizationCaller | None = None
) -> Membership:
    """Take a person in; somebody who is there already is refused."""
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
        target(membership),
        after={"email": user.email, "role": role.display_name},
        organization_id=organization_id,
    )
    return membership


@transaction.atomic
def change_role(
    *, membership: Membership, role: AnyRole, by: OrganizationCaller | None = None
) -> Membership:
    """Give a member another role; the last owner keeps theirs."""
    row = _locked(membership)
    before = row.held_role
    check_grant(by, before, role)
    if before.display_name == role.display_name and before.id == role.id:
        return row
    _keep_an_owner(row)
    row.hold(role)
    row.save(update_fields=ROLE_FIELDS)
    record(
        Action.MEMBER_ROLE_CHANGED,
        target(row),
        before={"role": before.display_name},
        after={"role": role.display_name},
        organization_id=row.organization_id,
    )
    return row


@transaction.atomic
def remove_member(*, membership: Membership, by: OrganizationCaller | None = None) -> None:
    """Take a person out of the organization and all its workspaces; their keys end with it."""
    row = _locked(membership)
    is_own = by is not None and by.user_id == row.user_id
    if not is_own:
        check_grant(by, row.held_role)
    _take_out(row, Action.MEMBER_LEFT if is_own else Action.MEMBER_REMOVED)


@transaction.atomic
def leave(*, organization_id: UUID, user: User) -> None:
    """The person goes by themselves; the last owner cannot."""
    membership = Membership.objects.filter(organization_id=organization_id, user=user).first()
    if membership is None:
        raise core_errors.NotFound
    _take_out(_locked(membership), Action.MEMBER_LEFT)


@transaction.atomic
def transfer_ownership(*, organization_id: UUID, owner: User, to: Membership) -> None:
    """Make another member an owner and the owner who does it an admin, both or neither."""
    if to.organization_id != organization_id:
        raise core_errors.NotFound
    heir = _locked(to)
    memberships = Membership.objects.filter(organization_id=organization_id, role=OWNER)
    own = memberships.filter(user=owner).first()
    if own is None:
        raise core_errors.Forbidden("Only an owner hands an organization over.")
    if own.pk == heir.pk:
        raise core_errors.Conflict("You are the owner already.")
    memberships.model.objects.filter(pk=heir.pk).update(role=OWNER, custom_role=None)
    memberships.filter(pk=own.pk).update(role="admin")
    organization = heir.organization
    record(
        Action.OWNERSHIP_TRANSFERRED,
        Target("organization", organization.pk, organization.name),
        before={"owner": owner.email},
        after={"owner": heir.user.email},
        organization_id=organization_id,
    )


def _locked(membership: Membership) -> Membership:
    """The row as it is now, with nobody else changing people of the organization."""
    Organization.objects.select_for_update(no_key=True).get(pk=membership.organization_id)
    rows = Membership.objects.select_related("user", "custom_role", "organization")
    found = rows.filter(pk=membership.pk).first()
    if found is None:
        raise core_errors.NotFound
    return found


def _keep_an_owner(membership: Membership) -> None:
    if membership.role != OWNER:
        return
    owners = Membership.objects.filter(
        organization_id=membership.organization_id, role=OWNER, user__is_active=True
    )
    if not owners.exclude(pk=membership.pk).exists():
        raise LastOwner


def _take_out(membership: Membership, action: Action) -> None:
    _keep_an_owner(membership)
    WorkspaceMembership.objects.filter(
        user_id=membership.user_id, workspace__organization_id=membership.organization_id
    ).delete()
    hooks.member_removed(membership.organization_id, membership.user_id)
    record(
        action,
        target(membership),
        before={"email": membership.user.email, "role": membership.held_role.display_name},
        organization_id=membership.organization_id,
    )
    membership.delete()


def target(membership: Membership) -> Target:
    return Target("member", membership.pk, membership.user.email)
