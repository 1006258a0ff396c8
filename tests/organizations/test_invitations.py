"""Invitations by address and by link."""

from datetime import timedelta

import pytest
import time_machine
from django.core import mail
from django.utils import timezone

from apps.core import errors
from apps.organizations.errors import (
    AlreadyMember,
    EmailNotVerified,
    InvitationAddressMismatch,
    InvitationClosed,
    PermissionEscalation,
)
from apps.organizations.models import Invitation, Membership, WorkspaceMembership
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import invitations, organization_caller_for
from apps.organizations.services.invitations import send_invitations
from tests.factories.organizations import UserFactory, WorkspaceFactory

pytestmark = pytest.mark.django_db

MEMBER, OWNER, ADMIN = (
    system_role(Level.ORGANIZATION, name) for name in ("member", "owner", "admin")
)
EDITOR = system_role(Level.WORKSPACE, "editor")


@pytest.fixture
def new_user():
    return UserFactory(email="new@example.com")


def invite(organization, **fields):
    return invitations.invite(organization_id=organization.pk, **{"role": MEMBER, **fields})


def test_only_a_hash_of_the_token_is_stored(organization):
    invitation = invite(organization, email="New@Example.com")

    token = invitations.invitation_token(invitation)
    stored = Invitation.objects.values_list("digest", "nonce", "email").get()
    assert token.encode() not in bytes(stored[0]) + bytes(stored[1])
    assert stored[2] == "new@example.com"
    assert invitations.get_by_token(token) == invitation
    with pytest.raises(errors.NotFound):
        invitations.get_by_token(token[:-1])


def test_invitation_is_accepted_once(organization, workspace, new_user):
    invitation = invite(organization, email=new_user.email, workspaces={workspace.pk: EDITOR})
    token = invitations.invitation_token(invitation)

    invitations.accept_link(token=token, user=new_user)

    assert Membership.objects.get(user=new_user).role == "member"
    assert WorkspaceMembership.objects.get(user=new_user).role == "editor"
    with pytest.raises(InvitationClosed):
        invitations.accept_link(token=token, user=new_user)


def test_invitation_is_for_its_address_only(organization, new_user):
    token = invitations.invitation_token(invite(organization, email="invited@example.com"))

    with pytest.raises(InvitationAddressMismatch):
        invitations.accept_link(token=token, user=new_user)

    assert not Membership.objects.exists()


def test_acceptance_without_the_link_requires_a_verified_address(organization, new_user):
    invitation = invite(organization, email=new_user.email)

    assert invitations.list_open_for(new_user) == []
    with pytest.raises(EmailNotVerified):
        invitations.accept(invitation=invitation, user=new_user)
    new_user.email_verified_at = timezone.now()
    assert invitations.list_open_for(new_user) == [invitation]
    invitations.accept(invitation=invitation, user=new_user)

    assert Membership.objects.filter(user=new_user).count() == 1


@pytest.mark.parametrize("end", ["revoke", "decline", "age", "replace"])
def test_closed_invitation_cannot_be_accepted(organization, new_user, end):
    invitation = invite(organization, email=new_user.email)
    token = invitations.invitation_token(invitation)

    if end == "revoke":
        invitations.revoke(invitation=invitation)
    elif end == "decline":
        invitations.decline(invitation=invitation, user=new_user)
    elif end == "replace":
        invite(organization, email=new_user.email)
    later = timedelta(days=8 if end == "age" else 0)
    with time_machine.travel(timezone.now() + later), pytest.raises(InvitationClosed):
        invitations.accept_link(token=token, user=new_user)

    assert not Membership.objects.exists()


def test_invitation_link_admits_several_users_and_grants_no_administrator_role(
    organization, workspace
):
    link = invite(organization, workspaces={workspace.pk: EDITOR})
    token = invitations.invitation_token(link)
    users = [UserFactory() for _ in range(3)]

    for user in users:
        invitations.accept_link(token=token, user=user)

    link.refresh_from_db()
    assert link.claims == 3
    assert Membership.objects.filter(role="member").count() == 3
    with pytest.raises(AlreadyMember):
        invitations.accept_link(token=token, user=users[0])
    for role in (OWNER, ADMIN):
        with pytest.raises(PermissionEscalation):
            invite(organization, role=role)


def test_invitation_cannot_exceed_the_inviters_permissions(organization, workspace, admin, owner):
    inviter = organization_caller_for(user=admin, organization_id=organization.pk)

    with pytest.raises(PermissionEscalation):
        invite(organization, email="x@example.com", role=OWNER, by=inviter)
    with pytest.raises(errors.NotFound):
        invite(organization, email="x@example.com", workspaces={WorkspaceFactory().pk: EDITOR})
    with pytest.raises(AlreadyMember):
        invite(organization, email=owner.email)

    assert not Invitation.objects.exists()


def test_invitation_email_is_sent_once_and_contains_the_link(organization, owner, settings):
    settings.EMAIL_HOST, settings.BASE_URL = "mail.example", "https://slipway.example"
    by = organization_caller_for(user=owner, organization_id=organization.pk)
    invitation = invite(organization, email="new@example.com", by=by)
    invite(organization)

    assert (send_invitations(), send_invitations()) == (1, 0)

    (sent,) = mail.outbox
    assert sent.to == ["new@example.com"]
    assert sent.subject == "owner invites you to Acme"
    assert (
        f"https://slipway.example/invitations/{invitations.invitation_token(invitation)}"
        in sent.body
    )


def test_invitations_stay_unsent_without_a_mail_server(organization, settings):
    settings.EMAIL_HOST = ""
    invite(organization, email="new@example.com")

    assert send_invitations() == 0

    assert Invitation.objects.unsent().count() == 1
