"""Callers can grant, change or revoke only permissions that they have."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.core.callers import Caller, OrganizationCaller
from apps.organizations.errors import PermissionEscalation, RoleNotFound
from apps.organizations.models import Role
from apps.organizations.permissions import Level
from apps.organizations.roles import SystemRole, system_role, system_role_by_id

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
