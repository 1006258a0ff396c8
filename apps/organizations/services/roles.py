"""Roles of an organization, and the check that callers grant only permissions they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import Caller, OrganizationCaller
from apps.organizations.errors import PermissionEscalation, RoleInUse, RoleNameTaken, RoleNotFound
from apps.organizations.models import Role
from apps.organizations.permissions import Level, permission_names
from apps.organizations.roles import SYSTEM_ROLES, SystemRole, system_role, system_role_by_id
from apps.organizations.services.permission_resolution import permissions_in_each

AnyRole = SystemRole | Role


def check_grant(by: Caller | OrganizationCaller | None, *roles: AnyRole) -> None:
    """Reject roles with permissions that the caller lacks. `by=None` is the operator."""
    if by is not None:
        for role in roles:
            check_permissions(by.permissions, role.permissions)


def check_permissions(allowed: frozenset[str], requested: Collection[str]) -> None:
    if missing := set(requested) - allowed:
        raise PermissionEscalation(errors=[{"permission": name} for name in sorted(missing)])


def find_role(organization_id: UUID, level: Level, role_id: UUID | str) -> AnyRole:
    """Return a role of the organization by id, or a system role by key (`editor`)."""
    if isinstance(role_id, str):
        try:
            return system_role(level, role_id)
        except KeyError:
            pass
        try:
            role_id = UUID(role_id)
        except ValueError:
            raise RoleNotFound from None
    system = system_role_by_id(role_id, level)
    if system is not None:
        return system
    rows = Role.objects.filter(organization_id=organization_id, level=level)
    custom = rows.filter(pk=role_id).first()
    if custom is None:
        raise RoleNotFound
    return custom


def list_roles(organization_id: UUID, level: Level | None = None) -> list[AnyRole]:
    """List the assignable roles: system roles, then custom roles by name."""
    custom = Role.objects.filter(organization_id=organization_id).order_by("level", "display_name")
    all_roles: list[AnyRole] = [*SYSTEM_ROLES, *custom]
    return [role for role in all_roles if level is None or role.level == level]


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
    """Create a custom role; `PermissionEscalation` for permissions that the caller lacks.

    Workspace permissions must be the caller's in each workspace of the organization.
    """
    role = Role(
        organization_id=organization_id,
        level=level,
        display_name=display_name,
        description=description,
        permissions=_validate_permissions(level, permissions, by),
    )
    _save(role)
    _record(Action.ROLE_CREATED, role, after=_audit_values(role))
    return role


@transaction.atomic
def update_role(
    *, role: Role, changes: Mapping[str, Any], by: OrganizationCaller | None = None
) -> Role:
    """Change name, description or permissions; effective within a second."""
    row = Role.objects.select_for_update(no_key=True).get(pk=role.pk)
    before = _audit_values(row)
    if "permissions" in changes:
        # A caller can remove only permissions that they have.
        _validate_permissions(Level(row.level), row.permissions, by)
        row.permissions = _validate_permissions(Level(row.level), changes["permissions"], by)
    row.display_name = changes.get("display_name", row.display_name)
    row.description = changes.get("description", row.description)
    _save(row)
    if (after := _audit_values(row)) != before:
        _record(Action.ROLE_UPDATED, row, before=before, after=after)
    return row


@transaction.atomic
def delete_role(*, role: Role) -> None:
    """Delete the role. Raises `RoleInUse` while it is assigned."""
    _record(Action.ROLE_DELETED, role, before=_audit_values(role))
    try:
        role.delete()
    except ProtectedError:
        raise RoleInUse from None


def _validate_permissions(
    level: Level, permissions: Collection[str], by: OrganizationCaller | None
) -> list[str]:
    all_names = permission_names(level)
    if unknown := set(permissions) - set(all_names):
        raise core_errors.Invalid(
            f"`permissions` contains `{min(unknown)}`, which is not a permission of this level.",
            [{"field": "permissions", "message": name} for name in sorted(unknown)],
        )
    if by is not None:
        is_organization = level == Level.ORGANIZATION
        check_permissions(
            by.permissions if is_organization else permissions_in_each(by), permissions
        )
    return [name for name in all_names if name in set(permissions)]


def _save(role: Role) -> None:
    try:
        with transaction.atomic():
            role.save()
    except IntegrityError:
        raise RoleNameTaken from None


def _audit_values(role: Role) -> dict[str, Any]:
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
