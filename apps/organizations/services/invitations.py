"""Invitations: by email address or by link."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from uuid import UUID

from celery import current_app
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import F
from django.template.loader import render_to_string
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core.callers import OrganizationCaller
from apps.organizations.errors import (
    AlreadyMember,
    EmailNotVerified,
    InvitationAddressMismatch,
    InvitationClosed,
    PermissionEscalation,
)
from apps.organizations.models import (
    Invitation,
    InvitationWorkspace,
    Membership,
    Organization,
    User,
    Workspace,
    WorkspaceMembership,
    role_fields,
)
from apps.organizations.permissions import OrganizationPermission
from apps.organizations.services.permission_resolution import permissions_in
from apps.organizations.services.roles import AnyRole, check_grant, check_permissions

DEFAULT_LIFETIME = timedelta(days=7)


@transaction.atomic
def invite(
    *,
    organization_id: UUID,
    role: AnyRole,
    email: str = "",
    full_name: str = "",
    workspaces: Mapping[UUID, AnyRole] | None = None,
    by: OrganizationCaller | None = None,
    lifetime: timedelta = DEFAULT_LIFETIME,
) -> Invitation:
    """Invite the email address, which receives an email; without one, create a link.

    A second invitation to an address replaces the first. Raises `AlreadyMember` for a member and
    `PermissionEscalation` for a role beyond the caller's permissions, or for a link to a role that
    manages members.
    """
    email = email.strip().lower()
    workspace_roles = dict(workspaces or {})
    check_grant(by, role)
    if not email and OrganizationPermission.PEOPLE_MANAGE in role.permissions:
        raise PermissionEscalation("An invitation link cannot grant a role that manages members.")
    present = Workspace.objects.present().filter(
        organization_id=organization_id, pk__in=workspace_roles
    )
    if present.count() != len(workspace_roles):
        raise core_errors.NotFound("Workspace not found in the organization.")
    for workspace_id, workspace_role in workspace_roles.items():
        if by is not None:
            check_permissions(permissions_in(by, workspace_id), workspace_role.permissions)
    members = Membership.objects.filter(organization_id=organization_id)
    if email and members.filter(user__email=email).exists():
        raise AlreadyMember
    # Serialize, so that one address has at most one open invitation.
    Organization.objects.select_for_update(no_key=True).get(pk=organization_id)
    if email:
        pending = Invitation.objects.pending().filter(organization_id=organization_id)
        pending.to_address(email).update(revoked_at=timezone.now())

    nonce = secrets.token_bytes(16)
    invitation = Invitation(
        organization_id=organization_id,
        email=email,
        full_name=full_name,
        nonce=nonce,
        invited_by_id=by.user_id if by is not None else None,
        expires_at=timezone.now() + lifetime,
        **role_fields(role),
    )
    invitation.digest = _digest(invitation_token(invitation))
    invitation.save(force_insert=True)
    InvitationWorkspace.objects.bulk_create(
        InvitationWorkspace(
            invitation=invitation, workspace_id=workspace_id, **role_fields(workspace_role)
        )
        for workspace_id, workspace_role in workspace_roles.items()
    )
    record(
        Action.MEMBER_INVITED,
        _target(invitation),
        after={
            "email": email,
            "role": role.display_name,
            "workspaces": [str(workspace_id) for workspace_id in workspace_roles],
            "expires_at": invitation.expires_at,
        },
        organization_id=organization_id,
    )
    if email:
        # A periodic task sends the email if the message is lost.
        mail_invitations = partial(current_app.send_task, "organizations.mail_invitations")
        transaction.on_commit(mail_invitations, robust=True)
    return invitation


def invitation_token(invitation: Invitation) -> str:
    """Return the token of the invitation's link.

    It is an HMAC of the row under the installation's secret key: the link can be shown again, and
    a copy of the database does not contain it.
    """
    key = settings.SECRET_KEY.encode()
    message = b"invitation:" + invitation.pk.bytes + bytes(invitation.nonce)
    raw = hmac.digest(key, message, "sha256")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def invitation_url(invitation: Invitation) -> str:
    return f"{settings.BASE_URL}/invitations/{invitation_token(invitation)}"


def get_by_token(token: str) -> Invitation:
    """Return the open invitation of a link. Raises `NotFound` or `InvitationClosed`."""
    rows = Invitation.objects.select_related("organization", "custom_role", "invited_by")
    invitation = rows.filter(digest=_digest(token)).first()
    if invitation is None:
        raise core_errors.NotFound("Invitation not found.")
    if not invitation.is_open:
        raise InvitationClosed
    return invitation


def list_open_for(user: User) -> list[Invitation]:
    """List the open invitations to the user's verified address."""
    if user.email_verified_at is None:
        return []
    rows = (
        Invitation.objects.open()
        .to_address(user.email)
        .select_related("organization", "custom_role", "invited_by")
    )
    return list(rows.prefetch_related("workspaces__workspace", "workspaces__custom_role"))


def accept_link(*, token: str, user: User) -> Membership:
    """Accept the invitation of a link; `InvitationAddressMismatch` for another user's address."""
    invitation = get_by_token(token)
    if invitation.email and invitation.email != user.email:
        raise InvitationAddressMismatch
    return _accept(invitation, user)


def accept(*, invitation: Invitation, user: User) -> Membership:
    """Accept an invitation to the user's verified address."""
    if not invitation.email or invitation.email != user.email:
        raise core_errors.NotFound
    if user.email_verified_at is None:
        raise EmailNotVerified
    return _accept(invitation, user)


@transaction.atomic
def decline(*, invitation: Invitation, user: User) -> None:
    """Decline an invitation to the user's address. Safe to repeat."""
    if not invitation.email or invitation.email != user.email:
        raise core_errors.NotFound
    Invitation.objects.pending().filter(pk=invitation.pk).update(declined_at=timezone.now())


@transaction.atomic
def revoke(*, invitation: Invitation, by: OrganizationCaller | None = None) -> None:
    """Revoke the invitation. Safe to repeat."""
    check_grant(by, invitation.held_role)
    pending = Invitation.objects.pending().filter(pk=invitation.pk)
    if pending.update(revoked_at=timezone.now()):
        record(
            Action.INVITATION_REVOKED,
            _target(invitation),
            before={"email": invitation.email, "role": invitation.held_role.display_name},
            organization_id=invitation.organization_id,
        )


@transaction.atomic
def _accept(invitation: Invitation, user: User) -> Membership:
    Organization.objects.select_for_update(no_key=True).get(pk=invitation.organization_id)
    rows = Invitation.objects.open().select_related("custom_role")
    row = rows.filter(pk=invitation.pk).first()
    if row is None or not user.is_active:
        raise InvitationClosed
    membership, is_new = Membership.objects.get_or_create(
        organization_id=row.organization_id, user=user, defaults=role_fields(row.held_role)
    )
    if not is_new and row.is_link and not _adds_workspaces(row, user):
        raise AlreadyMember
    workspaces = row.workspaces.filter(workspace__deleted_at=None).select_related("custom_role")
    WorkspaceMembership.objects.bulk_create(
        [
            WorkspaceMembership(
                workspace_id=invited.workspace_id, user=user, **role_fields(invited.held_role)
            )
            for invited in workspaces
        ],
        ignore_conflicts=True,
    )
    changes = {"claims": F("claims") + 1}
    Invitation.objects.filter(pk=row.pk).update(
        **changes, **({} if row.is_link else {"claimed_at": timezone.now()})
    )
    record(
        Action.INVITATION_ACCEPTED,
        _target(row),
        after={"email": user.email, "role": membership.held_role.display_name},
        organization_id=row.organization_id,
    )
    return membership


def _adds_workspaces(invitation: Invitation, user: User) -> bool:
    current_ids = user.workspace_memberships.values("workspace_id")
    workspaces = invitation.workspaces.filter(workspace__deleted_at=None)
    return workspaces.exclude(workspace_id__in=current_ids).exists()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _target(invitation: Invitation) -> Target:
    return Target("member", invitation.pk, invitation.email or "a link")


log = logging.getLogger(__name__)
BATCH_SIZE = 100


def send_invitations() -> int:
    """Send the unsent invitations and return their number; a failed one is retried later.

    Without a mail server nothing is sent; the inviter copies the link from the page.
    """
    if not settings.EMAIL_HOST:
        return 0
    ids = list(Invitation.objects.unsent().order_by("pk").values_list("pk", flat=True)[:BATCH_SIZE])
    return sum(_send(pk) for pk in ids)


@transaction.atomic
def _send(pk: UUID) -> bool:
    # The process that locks the row sends the email; others skip it.
    rows = Invitation.objects.unsent().select_for_update(skip_locked=True, of=("self",))
    row = rows.select_related("organization", "invited_by").filter(pk=pk).first()
    if row is None:
        return False
    inviter = row.invited_by.display_name if row.invited_by else row.organization.name
    context = {"invitation": row, "inviter": inviter, "link": invitation_url(row)}
    try:
        send_mail(
            subject=f"{inviter} invites you to {row.organization.name}".replace("\n", " "),
            message=render_to_string("organizations/invitation.txt", context),
            from_email=None,
            recipient_list=[row.email],
        )
    except OSError as error:
        log.warning("Sending an invitation email failed: %s", type(error).__name__)
        return False
    Invitation.objects.filter(pk=row.pk).update(mailed_at=timezone.now())
    return True
