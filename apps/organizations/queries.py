"""Reads across people and places, for pages and lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from apps.core.access import OrganizationCaller
from apps.organizations.models import Membership, Role, User, Workspace, WorkspaceMembership
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.querysets import ADMINISTER
from apps.organizations.roles import SystemRole, system_role

_EVERYTHING = frozenset(str(word) for word in Permission)


@dataclass(frozen=True)
class Entered:
    """A workspace, and as what the caller is in it."""

    workspace: Workspace
    role: SystemRole | Role | None
    permissions: frozenset[str]


def workspaces_of(caller: OrganizationCaller, *, deleted_too: bool = False) -> list[Entered]:
    """The organization's workspaces that the caller may enter, by name; in two queries."""
    rows = Workspace.objects.filter(organization_id=caller.organization_id).order_by("name", "pk")
    if not deleted_too:
        rows = rows.present()
    if caller.workspace_ids is not None:
        rows = rows.filter(pk__in=caller.workspace_ids)
    admin = system_role(Level.WORKSPACE, "admin")
    if caller.user_id is None or caller.may(OrganizationPermission.WORKSPACES_ADMINISTER):
        everything = _EVERYTHING if caller.user_id is not None else frozenset()
        role = admin if caller.user_id is not None else None
        return [Entered(workspace, role, everything) for workspace in rows]
    own = WorkspaceMembership.objects.filter(
        user_id=caller.user_id, workspace__organization_id=caller.organization_id
    ).select_related("custom_role")
    held = {membership.workspace_id: membership.held_role for membership in own}
    return [
        Entered(workspace, held[workspace.pk], frozenset(held[workspace.pk].permissions))
        for workspace in rows.filter(pk__in=held)
    ]


def places_of(
    organization_id: UUID, user_ids: Collection[UUID]
) -> dict[UUID, list[tuple[Workspace, SystemRole | Role]]]:
    """In which workspaces these people are by themselves, and as what."""
    rows = WorkspaceMembership.objects.filter(
        user_id__in=user_ids,
        workspace__organization_id=organization_id,
        workspace__deleted_at=None,
    ).select_related("workspace", "custom_role")
    found: dict[UUID, list[tuple[Workspace, SystemRole | Role]]] = defaultdict(list)
    for row in rows.order_by("workspace__name"):
        found[row.user_id].append((row.workspace, row.held_role))
    return found


def administrators_of(organization_id: UUID) -> list[Membership]:
    """Who is an admin of every workspace."""
    administer = Q(role__in=["owner", "admin"]) | Q(custom_role__permissions__contains=[ADMINISTER])
    rows = Membership.objects.filter(administer, organization_id=organization_id)
    return list(rows.select_related("user", "custom_role").order_by("user__email"))


def memberships_by_user(organization_id: UUID, users: Collection[User]) -> dict[UUID, Membership]:
    rows = Membership.objects.filter(organization_id=organization_id, user__in=users)
    return {row.user_id: row for row in rows.select_related("custom_role")}
