"""Memberships of organizations and workspaces."""

from __future__ import annotations

from django.db import models

from apps.core.ids import uuid7
from apps.organizations.models.roles import RoleMixin, one_role
from apps.organizations.models.users import User
from apps.organizations.models.workspaces import Organization, Workspace
from apps.organizations.permissions import Level


class Membership(RoleMixin):
    """A user's role in an organization."""

    level = Level.ORGANIZATION
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="membership_once"),
            one_role("membership_one_role"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.organization} as {self.held_role.display_name}"


class WorkspaceMembership(RoleMixin):
    """A user's role in a workspace of their organization."""

    level = Level.WORKSPACE
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="workspace_memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="workspace_membership_once"),
            one_role("workspace_membership_one_role"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace} as {self.held_role.display_name}"
