"""What a person may do: read from their roles at this moment, nothing is kept."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.core.callers import Caller, OrganizationCaller
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
    permissions: frozenset[str] | None = _EVERYTHING
    if not _administers(role, custom):
        here = WorkspaceMembership.objects.filter(workspace_id=workspace_id, user=user)
        permissions = _in_workspace(here.values_list("role", "custom_role__permissions").first())
    if permissions is None:
        return None
    return Caller(organization_id, workspace_id, permissions, user_id=user.pk)


def callers_for(wanted: Collection[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], Caller]:
    """The same for many people, each in a workspace, in two queries.

    Who is nobody there is left out.
    """
    people, places = {user for user, _ in wanted}, {workspace for _, workspace in wanted}
    memberships = Membership.objects.filter(
        user__in=people,
        user__is_active=True,
        organization__workspaces__in=places,
        organization__workspaces__deleted_at=None,
    )
    standing = memberships.values_list(
        "user_id",
        "organization__workspaces__id",
        "organization_id",
        "role",
        "custom_role__permissions",
    )
    here = WorkspaceMembership.objects.filter(user__in=people, workspace__in=places)
    held = {
        (user, workspace): (role, custom)
        for user, workspace, role, custom in here.values_list(
            "user_id", "workspace_id", "role", "custom_role__permissions"
        )
    }
    found = {}
    for user, workspace, organization, role, custom in standing:
        who = user, workspace
        administers = _administers(role, custom)
        permissions = _EVERYTHING if administers else _in_workspace(held.get(who))
        if who in wanted and permissions is not None:
            found[who] = Caller(organization, workspace, permissions, user_id=user)
    return found


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


def _administers(role: str, custom: list[str] | None) -> bool:
    """Whether that standing in an organization makes an admin of each of its workspaces."""
    words = _words(Level.ORGANIZATION, role, custom)
    return OrganizationPermission.WORKSPACES_ADMINISTER in words


def _in_workspace(held: tuple[str, list[str] | None] | None) -> frozenset[str] | None:
    return None if held is None else _words(Level.WORKSPACE, *held)


def _words(level: Level, role: str, custom: list[str] | None) -> frozenset[str]:
    return (
        frozenset(custom) if custom is not None else frozenset(system_role(level, role).permissions)
    )
