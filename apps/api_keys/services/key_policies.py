"""What somebody who makes or ends keys may do, wherever those keys reach."""

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
    """Permissions by place, asked for only where they matter."""

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
        """Refuse unless the key's whole reach is theirs to look after."""
        if key.is_organization_wide:
            self.require_organization()
            return
        reach = list(key.workspaces.present().values_list("pk", flat=True))
        if not reach or not all(self._manages(pk) for pk in reach):
            self.require_organization()

    def require_organization(self) -> None:
        word = OrganizationPermission.SERVICE_KEYS_MANAGE
        if word not in self.on_organization():
            raise errors.Forbidden(f"Permission {word} is required.")

    def _manages(self, workspace_id: UUID) -> bool:
        return Permission.KEYS_MANAGE in self.in_workspace(workspace_id)
