"""Nobody gives away, changes or takes what they do not have themselves."""

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
    """Refuse roles that hold more than the caller may; without a caller it is the operator."""
    if by is not None:
        for role in roles:
            check_permissions(by.permissions, role.permissions)


def check_permissions(own: frozenset[str], wanted: Collection[str]) -> None:
    if beyond := set(wanted) - own:
        raise PermissionEscalation(errors=[{"permission": word} for word in sorted(beyond)])


def find_role(organization_id: UUID, level: Level, given: UUID | str) -> AnyRole:
    """A role of the organization by its id, or a system role by its name (`editor`)."""
    if isinstance(given, str):
        try:
            return system_role(level, given)
        except KeyError:
            pass
        try:
            given = UUID(given)
        except ValueError:
            raise RoleNotFound from None
    system = system_role_by_id(given, level)
    if system is not None:
        return system
    rows = Role.objects.filter(organization_id=organization_id, level=level)
    custom = rows.filter(pk=given).first()
    if custom is None:
        raise RoleNotFound
    return custom
