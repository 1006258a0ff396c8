"""Custom roles, and the roles that users have in organizations and workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from apps.core.ids import uuid7
from apps.organizations.models.workspaces import Organization, User, Workspace
from apps.organizations.permissions import Level
from apps.organizations.roles import SystemRole, system_role

if TYPE_CHECKING:
    from collections.abc import Sequence


class Role(models.Model):
    """A custom role of an organization."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="roles")
    level = models.CharField(max_length=20, choices=[(str(level), str(level)) for level in Level])
    display_name = models.CharField(max_length=60)
    description = models.CharField(max_length=200, blank=True)
    permissions = ArrayField(models.CharField(max_length=40))
    created_at = models.DateTimeField(auto_now_add=True)

    name = "CUSTOM"
    is_system = False

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "level", "display_name"], name="role_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.display_name


def role_constraint(name: str) -> models.CheckConstraint:
    """Require either a system role's name or a custom role."""
    return models.CheckConstraint(
        condition=Q(role="", custom_role__isnull=False) | (~Q(role="") & Q(custom_role=None)),
        name=name,
    )


class RoleMixin(models.Model):
    """A role reference: the name of a system role, or a custom role's row."""

    level: ClassVar[Level]
    role = models.CharField(max_length=20, blank=True)
    # An assigned role cannot be deleted.
    custom_role = models.ForeignKey(Role, models.PROTECT, null=True, blank=True, related_name="+")

    if TYPE_CHECKING:
        custom_role_id: UUID | None

    class Meta:
        abstract = True

    @property
    def held_role(self) -> SystemRole | Role:
        return self.custom_role or system_role(self.level, self.role)

    def hold(self, role: SystemRole | Role) -> None:
        """Set the role without saving."""
        for name, value in role_fields(role).items():
            setattr(self, name, value)


def role_fields(role: SystemRole | Role) -> dict[str, Any]:
    """Return the role as columns of `RoleMixin`."""
    if isinstance(role, SystemRole):
        return {"role": role.key, "custom_role": None}
    return {"role": "", "custom_role": role}


ROLE_FIELDS: Sequence[str] = ("role", "custom_role")


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
            role_constraint("membership_one_role"),
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
            role_constraint("workspace_membership_one_role"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace} as {self.held_role.display_name}"
