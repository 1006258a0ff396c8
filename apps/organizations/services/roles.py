"""Roles that an organization makes itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import OrganizationCaller
from apps.organizations.errors import RoleInUse, RoleNameTaken
from apps.organizations.models import Role
from apps.organizations.permissions import Level, permission_names
from apps.organizations.roles import SYSTEM_ROLES, SystemRole
from apps.organizations.services.grants import check_permissions


def list_roles(organization_id: UUID, level: Level | None = None) -> list[SystemRole | Role]:
    """All that can be given: the system's first, then the organization's own by name."""
    own = Role.objects.filter(organization_id=organization_id).order_by("level", "display_name")
    found: list[SystemRole | Role] = [*SYSTEM_ROLES, *own]
    return [role for role in found if level is None or role.level == level]


@transaction.atomic
def create_role(
    *,
    organization_id: UUID,
    level: Level,
    display_name: str,
    permissions: Collection[str],
    description: str = "",
    by: OrganizationCaller | None = None,
) -> Role:
    """A role of the organization's own. Nobody can put into it what they may not do themselves."""
    role = Role(
        organization_id=organization_id,
        level=level,
        display_name=display_name,
        description=description,
        permissions=_checked(level, permissions, by),
    )
    _saved(role)
    _record(Action.ROLE_CREATED, role, after=_told(role))
    return role


@transaction.atomic
def update_role(
    *, role: Role, changes: Mapping[str, Any], by: OrganizationCaller | None = None
) -> Role:
    """Change name, description or permissions; who holds the role has them within a second."""
    row = Role.objects.select_for_update(no_key=True).get(pk=role.pk)
    before = _told(row)
    if "permissions" in changes:
        # Taking away what one does not have is no less an act on others than giving it.
        _checked(Level(row.level), row.permissions, by)
        row.permissions = _checked(Level(row.level), changes["permissions"], by)
    row.display_name = changes.get("display_name", row.display_name)
    row.description = changes.get("description", row.description)
    _saved(row)
    if (after := _told(row)) != before:
        _record(Action.ROLE_UPDATED, row, before=before, after=after)
    return row


@transaction.atomic
def delete_role(*, role: Role) -> None:
    """Take the role away; refused while anybody holds it or is invited to it."""
    _record(Action.ROLE_DELETED, role, before=_told(role))
    try:
        role.delete()
    except ProtectedError:
        raise RoleInUse from None


def _checked(
    level: Level, permissions: Collection[str], by: OrganizationCaller | None
) -> list[str]:
    known = permission_names(level)
    if unknown := set(permissions) - set(known):
        raise core_errors.Invalid(
            f"Not a permission of this level: {min(unknown)}.",
            [{"field": "permissions", "message": word} for word in sorted(unknown)],
        )
    # Words of workspaces are for the administrators of all of them to hand out, who have them all.
    if by is not None and level == Level.ORGANIZATION:
        check_permissions(by.permissions, permissions)
    return [word for word in known if word in set(permissions)]


def _saved(role: Role) -> None:
    try:
        with transaction.atomic():
            role.save()
    except IntegrityError:
        raise RoleNameTaken from None


def _told(role: Role) -> dict[str, Any]:
    return {
        "display_name": role.display_name,
        "description": role.description,
        "permissions": role.permissions,
        "access_scope": role.level,
    }


def _record(
    action: Action,
    role: Role,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    record(
        action,
        Target("role", role.pk, role.display_name),
        before=before,
        after=after,
        organization_id=role.organization_id,
    )
