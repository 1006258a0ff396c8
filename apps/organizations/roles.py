"""The roles that every organization has: data, with ids that are the same in every installation."""

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
    """A role that nobody can change."""

    id: UUID
    level: Level
    key: str
    """As memberships store it."""
    name: str
    """As the wire has it."""
    display_name: str
    description: str
    permissions: tuple[str, ...]
    organization_id: None = None
    is_system: bool = True


_WORDS: dict[tuple[Level, str], tuple[str, str, str]] = {
    (Level.ORGANIZATION, "owner"): (
        "ORGANIZATION_OWNER",
        "Organization Owner",
        "Everything, other owners and billing included.",
    ),
    (Level.ORGANIZATION, "admin"): (
        "ORGANIZATION_ADMIN",
        "Organization Admin",
        "Everything but owners and billing; an admin of every workspace.",
    ),
    (Level.ORGANIZATION, "member"): (
        "ORGANIZATION_USER",
        "Organization User",
        "Works in the workspaces that they are added to.",
    ),
    (Level.ORGANIZATION, "viewer"): (
        "ORGANIZATION_VIEWER",
        "Organization Viewer",
        "Sees the organization and changes nothing of it.",
    ),
    (Level.WORKSPACE, "admin"): (
        "WORKSPACE_ADMIN",
        "Admin",
        "Everything in the workspace, people and keys included.",
    ),
    (Level.WORKSPACE, "editor"): (
        "WORKSPACE_USER",
        "Editor",
        "Everything but people, keys and settings of the workspace.",
    ),
    (Level.WORKSPACE, "viewer"): ("WORKSPACE_VIEWER", "Viewer", "Reads and changes nothing."),
    (Level.WORKSPACE, "annotator"): (
        "WORKSPACE_ANNOTATOR",
        "Annotator",
        "Reads runs and gives feedback.",
    ),
}


def _made() -> list[SystemRole]:
    sets = {
        **{(Level.ORGANIZATION, key): words for key, words in ORGANIZATION_ROLES.items()},
        **{(Level.WORKSPACE, key): words for key, words in WORKSPACE_ROLES.items()},
    }
    return [
        SystemRole(
            uuid5(_NAMESPACE, f"{level}:{key}"),
            level,
            key,
            *_WORDS[level, key],
            tuple(sorted(str(word) for word in words)),
        )
        for (level, key), words in sets.items()
    ]


SYSTEM_ROLES = _made()
_BY_ID = {role.id: role for role in SYSTEM_ROLES}
_BY_KEY = {(role.level, role.key): role for role in SYSTEM_ROLES}


def system_role(level: Level, key: str) -> SystemRole:
    return _BY_KEY[level, key]


def system_role_by_id(role_id: UUID, level: Level) -> SystemRole | None:
    role = _BY_ID.get(role_id)
    return role if role is not None and role.level == level else None
