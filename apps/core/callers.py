"""Who is asking: the answers that every surface (DRF, consumers, Agent Server) works with."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from apps.core import errors


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated key or user, in one workspace, with what it may do there."""

    organization_id: UUID
    workspace_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    user_id: UUID | None = None
    """The person, or who made the key."""

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Refuse with 403 unless the caller has the permission."""
        _require(self.permissions, permission)


@dataclass(frozen=True, slots=True)
class OrganizationCaller:
    """An authenticated key or user, with what it may do with an organization itself."""

    organization_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    user_id: UUID | None = None
    """The person, also behind a personal key; None for a key that is nobody's."""
    workspace_ids: frozenset[UUID] | None = None
    """What a key reaches; None where the key says nothing narrower."""
    key_permissions: frozenset[str] | None = None
    """What a key may do at most in the workspaces that it reaches; None without a key."""

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Refuse with 403 unless the caller has the permission."""
        _require(self.permissions, permission)


@dataclass(frozen=True, slots=True)
class PersonCaller:
    """A person, by a session or by a personal key, in no place in particular."""

    user_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    organization_id: UUID | None = None
    """A key's, which speaks for its person in one organization only."""

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Refuse with 403 unless the caller has the permission."""
        _require(self.permissions, permission)


def _require(permissions: frozenset[str], permission: str) -> None:
    if permission not in permissions:
        raise errors.Forbidden(f"This needs the permission {permission}.")
