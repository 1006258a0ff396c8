"""Invitations to an email address, or by a link."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.ids import uuid7
from apps.organizations.models.roles import RoleMixin, role_constraint
from apps.organizations.models.workspaces import Organization, User, Workspace
from apps.organizations.permissions import Level
from apps.organizations.querysets import InvitationQuerySet


class Invitation(RoleMixin):
    """An invitation to an organization.

    With an email address only its user can accept, once. Without one, anyone with the link can
    accept until the invitation expires or is revoked.
    """

    level = Level.ORGANIZATION
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="invitations")
    email = models.EmailField(max_length=254, blank=True)
    full_name = models.CharField(max_length=150, blank=True)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    """SHA-256 of the token, which has 256 bits."""
    nonce = models.BinaryField(max_length=16, editable=False)
    """The token is an HMAC of this under the installation's secret key."""
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    mailed_at = models.DateTimeField(null=True, editable=False)
    claimed_at = models.DateTimeField(null=True, editable=False)
    claims = models.PositiveIntegerField(default=0, editable=False)
    declined_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints = [
            role_constraint("invitation_one_role"),
            # A second invitation to the same address replaces the first.
            models.UniqueConstraint(
                fields=["organization", "email"],
                condition=Q(claimed_at=None, declined_at=None, revoked_at=None) & ~Q(email=""),
                name="invitation_waits_once",
            ),
        ]
        indexes = [models.Index(fields=["email", "expires_at"], name="invitation_by_email")]

    def __str__(self) -> str:
        return f"{self.email or 'a link'} to {self.organization}"

    @property
    def is_open(self) -> bool:
        """Whether the invitation can be accepted."""
        closed = self.claimed_at or self.declined_at or self.revoked_at
        return closed is None and self.expires_at > timezone.now()

    @property
    def is_link(self) -> bool:
        return not self.email


class InvitationWorkspace(RoleMixin):
    """A workspace that the invitation includes, with the role in it."""

    level = Level.WORKSPACE
    invitation = models.ForeignKey(Invitation, models.CASCADE, related_name="workspaces")
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["invitation", "workspace"], name="invitation_workspace_once"
            ),
            role_constraint("invitation_workspace_one_role"),
        ]

    def __str__(self) -> str:
        return f"{self.workspace} as {self.held_role.display_name}"
