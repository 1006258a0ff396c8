"""The system roles of every organization. Their ids are the same in every installation."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid5

from apps.organizations.permissions import (
    ORGANIZATION_ROLES,
    WORKSPACE_ROLES,
    Level,
)

_NAMESPACE = UUID("aecc3350-7a82-4220-a8ee-461621200a1d")


@dataclass(frozen=True)
class SystemRole:
    """An immutable role."""

    id: UUID
    level: Level
    key: str
    """The value stored in memberships."""
    name: str
    """The name in the API."""
    display_name: str
    description: str
    permissions: tuple[str, ...]
    organization_id: None = None
    is_system: bool = True


_LABELS: dict[tuple[Level, str], tuple[str, str, str]] = {
    (Level.ORGANIZATION, "owner"): (
        "ORGANIZATION_OWNER",
        "Organization Owner",
        "Full access, including owners and billing.",
    ),
    (Level.ORGANIZATION, "admin"): (
        "ORGANIZATION_ADMIN",
        "Organization Admin",
        "Full access except owners and billing. Admin of every workspace.",
    ),
    (Level.ORGANIZATION, "member"): (
        "ORGANIZATION_USER",
        "Organization User",
        "Access to the workspaces that the member is added to.",
    ),
    (Level.ORGANIZATION, "viewer"): (
        "ORGANIZATION_VIEWER",
        "Organization Viewer",
        "Read-only access to the organization.",
    ),
    (Level.WORKSPACE, "admin"): (
        "WORKSPACE_ADMIN",
        "Admin",
        "Full access to the workspace, including members and keys.",
    ),
    (Level.WORKSPACE, "editor"): (
        "WORKSPACE_USER",
        "Editor",
        "Full access except members, keys and workspace settings.",
    ),
    (Level.WORKSPACE, "viewer"): ("WORKSPACE_VIEWER", "Viewer", "Read-only access."),
    (Level.WORKSPACE, "annotator"): (
        "WORKSPACE_ANNOTATOR",
        "Annotator",
        "Reads runs and creates feedback.",
    ),
}


def _build_system_roles() -> list[SystemRole]:
    sets = {
        **{
            (Level.ORGANIZATION, key): permissions
            for key, permissions in ORGANIZATION_ROLES.items()
        },
        **{(Level.WORKSPACE, key): permissions for key, permissions in WORKSPACE_ROLES.items()},
    }
    return [
        SystemRole(
            uuid5(_NAMESPACE, f"{level}:{key}"),
            level,
            key,
            *_LABELS[level, key],
            tuple(sorted(str(permission) for permission in permissions)),
        )
        for (level, key), permissions in sets.items()
    ]


SYSTEM_ROLES = _build_system_roles()
_BY_ID = {role.id: role for role in SYSTEM_ROLES}
_BY_KEY = {(role.level, role.key): role for role in SYSTEM_ROLES}


def system_role(level: Level, key: str) -> SystemRole:
    return _BY_KEY[level, key]


def system_role_by_id(role_id: UUID, level: Level) -> SystemRole | None:
    role = _BY_ID.get(role_id)
    return role if role is not None and role.level == level else None
