"""Read queries over members and workspaces, for pages and lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.core.callers import OrganizationCaller
from apps.organizations.models import Membership, Role, User, Workspace, WorkspaceMembership
from apps.organizations.permissions import (
    ORGANIZATION_ADMINS,
    Level,
    OrganizationPermission,
    Permission,
)
from apps.organizations.querysets import ADMINISTER
from apps.organizations.roles import SystemRole, system_role

_ALL = frozenset(str(permission) for permission in Permission)


@dataclass(frozen=True)
class AccessibleWorkspace:
    """A workspace with the caller's role and permissions in it."""

    workspace: Workspace
    role: SystemRole | Role | None
    permissions: frozenset[str]


def accessible_workspaces(
    caller: OrganizationCaller, *, include_deleted: bool = False
) -> list[AccessibleWorkspace]:
    """List the organization's workspaces that the caller may enter, by name."""
    rows = Workspace.objects.filter(organization_id=caller.organization_id).order_by("name", "pk")
    if not include_deleted:
        rows = rows.present()
    if caller.workspace_ids is not None:
        rows = rows.filter(pk__in=caller.workspace_ids)
    limit = _ALL if caller.key_permissions is None else caller.key_permissions
    if caller.user_id is None:
        return [AccessibleWorkspace(workspace, None, limit) for workspace in rows]
    if caller.may(OrganizationPermission.WORKSPACES_ADMINISTER):
        return [
            AccessibleWorkspace(workspace, system_role(Level.WORKSPACE, "admin"), limit)
            for workspace in rows
        ]
    user = User.objects.get(pk=caller.user_id)
    memberships = user.workspace_memberships.select_related("custom_role")
    roles = {membership.workspace_id: membership.held_role for membership in memberships}
    return [
        AccessibleWorkspace(
            workspace,
            roles.get(workspace.pk, system_role(Level.WORKSPACE, "admin")),
            limit & frozenset(roles[workspace.pk].permissions) if workspace.pk in roles else limit,
        )
        for workspace in rows.open_to(user)
    ]


def workspace_roles_by_user(
    organization_id: UUID, user_ids: Collection[UUID]
) -> dict[UUID, list[tuple[Workspace, SystemRole | Role]]]:
    """Map each user to their direct workspace memberships: workspace and role."""
    rows = WorkspaceMembership.objects.filter(
        user_id__in=user_ids,
        workspace__organization_id=organization_id,
        workspace__deleted_at=None,
    ).select_related("workspace", "custom_role")
    roles: dict[UUID, list[tuple[Workspace, SystemRole | Role]]] = defaultdict(list)
    for row in rows.order_by("workspace__name"):
        roles[row.user_id].append((row.workspace, row.held_role))
    return roles


def list_workspace_administrators(organization_id: UUID) -> list[Membership]:
    """List the members who administer every workspace."""
    rows = query_workspace_administrators(organization_id)
    return list(rows.select_related("user", "custom_role").order_by("user__email"))


def query_workspace_administrators(organization_id: UUID) -> QuerySet[Membership]:
    administer = Q(role__in=["owner", "admin"]) | Q(custom_role__permissions__contains=[ADMINISTER])
    return Membership.objects.filter(administer, organization_id=organization_id)


def memberships_by_user(organization_id: UUID, users: Collection[User]) -> dict[UUID, Membership]:
    rows = Membership.objects.filter(organization_id=organization_id, user__in=users)
    return {row.user_id: row for row in rows.select_related("custom_role")}


def administrator_emails(organization_ids: Collection[UUID]) -> dict[UUID, list[str]]:
    """Map each organization to the email addresses of its owners and admins, owners first."""
    if not organization_ids:
        return {}
    rows = Membership.objects.filter(organization_id__in=organization_ids)
    rows = rows.filter(role__in=ORGANIZATION_ADMINS).order_by("-role", "user__email")
    emails: dict[UUID, list[str]] = defaultdict(list)
    for organization_id, email in rows.values_list("organization_id", "user__email"):
        emails[organization_id].append(email)
    return emails
