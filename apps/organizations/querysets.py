from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.organizations.permissions import ORGANIZATION_ADMINS, OrganizationPermission

if TYPE_CHECKING:
    from apps.organizations.models import (  # noqa: F401
        Invitation,
        Tagging,
        TagKey,
        TagValue,
        User,
        Workspace,
        WorkspaceSecret,
    )

ADMINISTER = str(OrganizationPermission.WORKSPACES_ADMINISTER)


class WorkspaceQuerySet(models.QuerySet["Workspace"]):
    def present(self) -> WorkspaceQuerySet:
        """Workspaces that are not deleted."""
        return self.filter(deleted_at=None)

    def open_to(self, user: User) -> WorkspaceQuerySet:
        """Workspaces that the user may enter, as a member or as an administrator of all."""
        memberships = user.memberships.all()
        administers = Q(role__in=ORGANIZATION_ADMINS) | Q(
            custom_role__permissions__contains=[ADMINISTER]
        )
        administered = memberships.filter(administers).values("organization_id")
        invited = user.workspace_memberships.values("workspace_id")
        return self.present().filter(
            Q(organization_id__in=administered)
            | Q(pk__in=invited, organization_id__in=memberships.values("organization_id"))
        )


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def pending(self) -> InvitationQuerySet:
        """Invitations not accepted, declined or revoked; they may have expired."""
        return self.filter(claimed_at=None, declined_at=None, revoked_at=None)

    def open(self) -> InvitationQuerySet:
        return self.pending().filter(expires_at__gt=timezone.now())

    def unsent(self) -> InvitationQuerySet:
        """Open invitations whose email was not sent."""
        return self.open().filter(mailed_at=None).exclude(email="")

    def to_address(self, email: str) -> InvitationQuerySet:
        return self.filter(email=email.strip().lower())

    def to_workspace(self, workspace_id: UUID) -> InvitationQuerySet:
        return self.filter(workspaces__workspace_id=workspace_id)


class TagKeyQuerySet(models.QuerySet["TagKey"]):
    pass


class TagValueQuerySet(models.QuerySet["TagValue"]):
    pass


class TaggingQuerySet(models.QuerySet["Tagging"]):
    def of_resources(self, resource_type: str, resource_ids: list[UUID]) -> TaggingQuerySet:
        return self.filter(resource_type=resource_type, resource_id__in=resource_ids)


class SecretQuerySet(models.QuerySet["WorkspaceSecret"]):
    pass
