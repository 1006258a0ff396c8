"""Authenticated callers, as DRF views, consumers and the Agent Server receive them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from apps.core import errors


class PermissionHolder:
    """The permission checks of all callers."""

    __slots__ = ()
    permissions: frozenset[str]

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Raise `Forbidden` unless the caller has the permission."""
        if permission not in self.permissions:
            raise errors.Forbidden(f"Permission {permission} is required.")


@dataclass(frozen=True, slots=True)
class Caller(PermissionHolder):
    """An authenticated key or user in one workspace, with its permissions there."""

    organization_id: UUID
    workspace_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    user_id: UUID | None = None
    """The user, or the creator of the key."""


@dataclass(frozen=True, slots=True)
class OrganizationCaller(PermissionHolder):
    """An authenticated key or user with its permissions on an organization."""

    organization_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    user_id: UUID | None = None
    """The user, also for a personal key; None for a service key."""
    workspace_ids: frozenset[UUID] | None = None
    """Workspaces that a key is limited to; None for no such limit."""
    key_permissions: frozenset[str] | None = None
    """Upper bound of a key's permissions in its workspaces; None without a key."""


@dataclass(frozen=True, slots=True)
class PersonCaller(PermissionHolder):
    """A user, by session or personal key, outside any workspace."""

    user_id: UUID
    permissions: frozenset[str]
    key_id: UUID | None = None
    organization_id: UUID | None = None
    """Set for a personal key, which is valid in one organization."""
