"""Who is asking: the answer every surface (DRF, consumers, Agent Server) works with."""

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

    def may(self, permission: str) -> bool:
        return permission in self.permissions

    def require(self, permission: str) -> None:
        """Refuse with 403 unless the caller has the permission."""
        if permission not in self.permissions:
            raise errors.Forbidden(f"This needs the permission {permission}.")
