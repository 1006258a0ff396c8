"""Permissions of the caller who issues or revokes keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from apps.api_keys.models import ApiKey
from apps.core import errors
from apps.organizations.models import User
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.services import caller_for, organization_caller_for


@dataclass(frozen=True)
class KeyPolicy:
    """The caller's permissions per workspace and on the organization, resolved on demand."""

    in_workspace: Callable[[UUID], frozenset[str]]
    on_organization: Callable[[], frozenset[str]]

    @classmethod
    def of_user(cls, user: User, organization_id: UUID) -> KeyPolicy:
        def in_workspace(workspace_id: UUID) -> frozenset[str]:
            caller = caller_for(user=user, workspace_id=workspace_id)
            return caller.permissions if caller is not None else frozenset()

        def on_organization() -> frozenset[str]:
            caller = organization_caller_for(user=user, organization_id=organization_id)
            return caller.permissions if caller is not None else frozenset()

        return cls(in_workspace, on_organization)

    def check_manages(self, key: ApiKey) -> None:
        """Raise `Forbidden` unless the caller manages every workspace of the key."""
        if key.is_organization_wide:
            self.require_organization()
            return
        workspace_ids = list(key.workspaces.present().values_list("pk", flat=True))
        if not workspace_ids or not all(self._manages(pk) for pk in workspace_ids):
            self.require_organization()

    def require_organization(self) -> None:
        permission = OrganizationPermission.SERVICE_KEYS_MANAGE
        if permission not in self.on_organization():
            raise errors.Forbidden(f"Permission {permission} is required.")

    def _manages(self, workspace_id: UUID) -> bool:
        return Permission.KEYS_MANAGE in self.in_workspace(workspace_id)
