"""What a person may do: read from their roles at this moment, nothing is kept."""

from __future__ import annotations

from uuid import UUID

from apps.core.access import Caller, OrganizationCaller
from apps.organizations.models import Membership, User, WorkspaceMembership
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.roles import system_role

_EVERYTHING = frozenset(str(word) for word in Permission)


def caller_for(*, user: User, workspace_id: UUID) -> Caller | None:
    """What the person may do in that workspace; None when it does not exist for them."""
    if not user.is_active:
        return None
    memberships = Membership.objects.filter(
        user=user,
        organization__workspaces__id=workspace_id,
        organization__workspaces__deleted_at=None,
    )
    standing = memberships.values_list("organization_id", "role", "custom_role__permissions")
    found = standing.first()
    if found is None:
        return None
    organization_id, role, custom = found
    if OrganizationPermission.WORKSPACES_ADMINISTER in _words(Level.ORGANIZATION, role, custom):
        permissions = _EVERYTHING
    else:
        here = WorkspaceMembership.objects.filter(workspace_id=workspace_id, user=user)
        held = here.values_list("role", "custom_role__permissions").first()
        if held is None:
            return None
        permissions = _words(Level.WORKSPACE, *held)
    return Caller(
        organization_id=organization_id,
        workspace_id=workspace_id,
        permissions=permissions,
        user_id=user.pk,
    )


def organization_caller_for(*, user: User, organization_id: UUID) -> OrganizationCaller | None:
    """What the person may do with the organization; None when it does not exist for them."""
    if not user.is_active:
        return None
    memberships = Membership.objects.filter(user=user, organization_id=organization_id)
    held = memberships.values_list("role", "custom_role__permissions").first()
    if held is None:
        return None
    return OrganizationCaller(
        organization_id=organization_id,
        permissions=_words(Level.ORGANIZATION, *held),
        user_id=user.pk,
    )


def permissions_in(by: OrganizationCaller, workspace_id: UUID) -> frozenset[str]:
    """What somebody who acts on the organization may do in one of its workspaces."""
    if by.workspace_ids is not None and workspace_id not in by.workspace_ids:
        return frozenset()
    most = _EVERYTHING if by.key_permissions is None else by.key_permissions
    if by.user_id is None:
        return most
    caller = caller_for(user=User.objects.get(pk=by.user_id), workspace_id=workspace_id)
    return most & caller.permissions if caller is not None else frozenset()


def _words(level: Level, role: str, custom: list[str] | None) -> frozenset[str]:
    return (
        frozenset(custom) if custom is not None else frozenset(system_role(level, role).permissions)
    )
