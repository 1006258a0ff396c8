"""Resolution of users' permissions from their current roles, without a cache."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.core.callers import Caller, OrganizationCaller
from apps.organizations.models import Membership, User, Workspace, WorkspaceMembership
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.roles import system_role

_ALL = frozenset(str(permission) for permission in Permission)


def caller_for(*, user: User, workspace_id: UUID) -> Caller | None:
    """Return the user's caller in the workspace; None without access."""
    if not user.is_active:
        return None
    memberships = Membership.objects.filter(
        user=user,
        organization__workspaces__id=workspace_id,
        organization__workspaces__deleted_at=None,
    )
    row = memberships.values_list("organization_id", "role", "custom_role__permissions").first()
    if row is None:
        return None
    organization_id, role, custom = row
    permissions: frozenset[str] | None = _ALL
    if not _administers(role, custom):
        rows = WorkspaceMembership.objects.filter(workspace_id=workspace_id, user=user)
        permissions = _workspace_permissions(
            rows.values_list("role", "custom_role__permissions").first()
        )
    if permissions is None:
        return None
    return Caller(organization_id, workspace_id, permissions, user_id=user.pk)


def callers_for(pairs: Collection[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], Caller]:
    """Return the callers of many (user, workspace) pairs in two queries.

    Pairs without access are left out.
    """
    user_ids, workspace_ids = {user for user, _ in pairs}, {workspace for _, workspace in pairs}
    memberships = Membership.objects.filter(
        user__in=user_ids,
        user__is_active=True,
        organization__workspaces__in=workspace_ids,
        organization__workspaces__deleted_at=None,
    )
    organization_roles = memberships.values_list(
        "user_id",
        "organization__workspaces__id",
        "organization_id",
        "role",
        "custom_role__permissions",
    )
    rows = WorkspaceMembership.objects.filter(user__in=user_ids, workspace__in=workspace_ids)
    workspace_roles = {
        (user, workspace): (role, custom)
        for user, workspace, role, custom in rows.values_list(
            "user_id", "workspace_id", "role", "custom_role__permissions"
        )
    }
    callers = {}
    for user, workspace, organization, role, custom in organization_roles:
        pair = user, workspace
        administers = _administers(role, custom)
        permissions = _ALL if administers else _workspace_permissions(workspace_roles.get(pair))
        if pair in pairs and permissions is not None:
            callers[pair] = Caller(organization, workspace, permissions, user_id=user)
    return callers


def organization_caller_for(*, user: User, organization_id: UUID) -> OrganizationCaller | None:
    """Return the user's caller on the organization; None for a non-member."""
    if not user.is_active:
        return None
    memberships = Membership.objects.filter(user=user, organization_id=organization_id)
    role_row = memberships.values_list("role", "custom_role__permissions").first()
    if role_row is None:
        return None
    return OrganizationCaller(
        organization_id=organization_id,
        permissions=_permissions(Level.ORGANIZATION, *role_row),
        user_id=user.pk,
    )


def permissions_in(by: OrganizationCaller, workspace_id: UUID) -> frozenset[str]:
    """Return the permissions of an organization caller in one of its workspaces."""
    if by.workspace_ids is not None and workspace_id not in by.workspace_ids:
        return frozenset()
    limit = _ALL if by.key_permissions is None else by.key_permissions
    if by.user_id is None:
        return limit
    caller = caller_for(user=User.objects.get(pk=by.user_id), workspace_id=workspace_id)
    return limit & caller.permissions if caller is not None else frozenset()


def permissions_in_each(by: OrganizationCaller) -> frozenset[str]:
    """Return the permissions that the caller has in each workspace of the organization.

    Members may hold a custom workspace role in any of them.
    """
    limit = _ALL if by.key_permissions is None else by.key_permissions
    if by.may(OrganizationPermission.WORKSPACES_ADMINISTER) and by.workspace_ids is None:
        return limit
    if by.user_id is None or by.workspace_ids is not None:
        return frozenset()
    workspaces = Workspace.objects.present().filter(organization_id=by.organization_id)
    memberships = WorkspaceMembership.objects.filter(
        user_id=by.user_id, workspace__in=workspaces.values("pk")
    )
    role_rows = memberships.values_list("role", "custom_role__permissions")
    if len(role_rows) == 0 or len(role_rows) < workspaces.count():
        return frozenset()
    return limit.intersection(*(_permissions(Level.WORKSPACE, *row) for row in role_rows))


def _administers(role: str, custom: list[str] | None) -> bool:
    """Whether the organization role administers all workspaces."""
    permissions = _permissions(Level.ORGANIZATION, role, custom)
    return OrganizationPermission.WORKSPACES_ADMINISTER in permissions


def _workspace_permissions(role_row: tuple[str, list[str] | None] | None) -> frozenset[str] | None:
    return None if role_row is None else _permissions(Level.WORKSPACE, *role_row)


def _permissions(level: Level, role: str, custom: list[str] | None) -> frozenset[str]:
    return (
        frozenset(custom) if custom is not None else frozenset(system_role(level, role).permissions)
    )
