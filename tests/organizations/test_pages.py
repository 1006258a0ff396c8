"""Pages of members, workspaces and keys."""

import re

import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.utils import timezone

from apps.api_keys.models import ApiKey
from apps.api_keys.services import caller_for_key
from apps.core import errors
from apps.organizations.models import Invitation, Membership, Role, Workspace, WorkspaceMembership
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import invitations, secrets
from tests.factories.organizations import MembershipFactory, UserFactory, people_of

pytestmark = pytest.mark.django_db

PAGES = {
    "general": "organizations/general.html",
    "members": "organizations/workspace_members.html",
    "keys": "api_keys/keys.html",
    "keys/personal": "api_keys/keys.html",
    "keys/organization": "api_keys/keys.html",
    "secrets": "organizations/secrets.html",
    "tags": "organizations/tags.html",
    "organization": "organizations/organization.html",
    "organization-members": "organizations/organization_members.html",
    "roles": "organizations/roles.html",
    "workspaces": "organizations/workspaces.html",
}
OPEN_TO_MEMBERS = {
    "general", "members", "keys/personal", "secrets", "tags", "organization",
    "organization-members", "roles", "workspaces",
}  # fmt: skip


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def at(workspace):
    return lambda page: f"/o/{workspace.pk}/settings/{page}"


@pytest.mark.parametrize("page", PAGES)
def test_owner_can_open_every_page_and_an_outsider_none(page, workspace, owner, outsider, at):
    people_of(workspace, "marked")

    response = signed_in(owner).get(at(page))

    assert response.status_code == 200
    assert PAGES[page] in [template.name for template in response.templates]
    assert signed_in(outsider).get(at(page)).status_code == 404
    assert Client().get(at(page)).status_code == 302


@pytest.mark.parametrize("page", PAGES)
def test_member_can_open_the_permitted_pages(page, workspace, owner, member, at):
    response = signed_in(member).get(at(page))

    assert response.status_code == (200 if page in OPEN_TO_MEMBERS else 403)


def test_navigation_shows_the_permitted_pages(member, owner, at):
    content = signed_in(member).get(at("general")).content.decode()

    assert "/settings/organization-members" in content
    assert "/settings/keys/organization" not in content
    assert "/settings/keys/organization" in signed_in(owner).get(at("general")).content.decode()


def test_workspace_is_renamed_and_deleted_after_confirmation(workspace, organization, owner, at):
    organization.workspaces.create(name="Other")
    client = signed_in(owner)

    assert client.post(at("general"), {"name": "New", "handle": "acme"}).status_code == 302
    assert client.post(at("general"), {"name": "New", "handle": "No!"}).status_code == 422
    assert client.post(at("general/delete"), {"name": "Home"}).status_code == 400
    assert Workspace.objects.present().filter(name="New", handle="acme").exists()
    assert client.post(at("general/delete"), {"name": "New"}).status_code == 302

    workspace.refresh_from_db()
    assert workspace.is_deleted
    assert client.get(at("general")).status_code == 404


def test_organization_member_is_added_changed_and_removed(workspace, organization, owner, at):
    new = MembershipFactory(organization=organization, user__email="new@example.com").user
    viewer, editor = (system_role(Level.WORKSPACE, name) for name in ("viewer", "editor"))
    client = signed_in(owner)

    client.post(at("members"), {"user": str(new.pk), "role": str(viewer.id)})
    row = WorkspaceMembership.objects.get(user=new)
    assert (row.workspace, row.role) == (workspace, "viewer")
    client.post(at(f"members/{row.pk}/role"), {"role": str(editor.id)})
    row.refresh_from_db()
    assert row.role == "editor"
    client.post(at(f"members/{row.pk}/remove"))
    assert not WorkspaceMembership.objects.filter(user=new).exists()


def test_member_can_leave_a_workspace_but_not_remove_others(workspace, owner, member, at):
    other = people_of(workspace, "other")["identity_id"]
    own = WorkspaceMembership.objects.get(user=member)
    client = signed_in(member)

    assert client.post(at(f"members/{other}/remove")).status_code == 403
    assert client.post(at(f"members/{own.pk}/remove")).status_code == 302
    assert list(WorkspaceMembership.objects.values_list("pk", flat=True)) == [other]


def test_a_key_is_shown_once_rotated_and_revoked(workspace, owner, at):
    client = signed_in(owner)

    response = client.post(at("keys"), {"name": "CI", "scope": "read", "lifetime": "30"})
    secret = re.search(r"slip_[\w-]{43}", response.content.decode())[0]
    assert caller_for_key(secret=secret).workspace_id == workspace.pk
    assert secret not in client.get(at("keys")).content.decode()

    key = ApiKey.objects.get(name="CI")
    form = {"kind": "workspace", "overlap": "3600"}
    rotated = client.post(at(f"keys/{key.pk}/rotate"), form)
    new_secret = re.search(r"slip_[\w-]{43}", rotated.content.decode())[0]
    assert caller_for_key(secret=new_secret).key_id == key.pk
    assert new_secret != secret

    client.post(at(f"keys/{key.pk}/revoke"), {"kind": "workspace"})
    key.refresh_from_db()
    assert not key.is_live


def test_member_can_create_personal_keys_only(workspace, member, owner, at):
    client = signed_in(member)

    response = client.post(
        at("keys/personal"), {"name": "Laptop", "scope": "admin", "lifetime": ""}
    )

    secret = re.search(r"slip_pt_[\w-]{43}", response.content.decode())[0]
    assert caller_for_key(secret=secret).user_id == member.pk
    assert client.post(at("keys"), {"name": "x", "scope": "read"}).status_code == 403
    assert client.post(at("keys/organization"), {"name": "x", "scope": "read"}).status_code == 403
    assert ApiKey.objects.count() == 1
    key = ApiKey.objects.get()
    stranger = MembershipFactory(organization=workspace.organization, role="viewer").user
    assert signed_in(stranger).post(at(f"keys/{key.pk}/revoke")).status_code == 404
    assert signed_in(owner).post(at(f"keys/{key.pk}/revoke")).status_code == 302


def test_organization_key_is_created_on_the_page(workspace, owner, at):
    response = signed_in(owner).post(
        at("keys/organization"), {"name": "All", "scope": "admin", "lifetime": ""}
    )

    secret = re.search(r"slip_[\w-]{43}", response.content.decode())[0]
    assert ApiKey.objects.get().is_organization_wide
    with pytest.raises(errors.Forbidden):
        caller_for_key(secret=secret)


def test_secrets_are_set_and_never_shown(workspace, owner, at):
    client = signed_in(owner)

    client.post(at("secrets"), {"key": "OPENAI_API_KEY", "value": "sk-very-secret"})

    content = client.get(at("secrets")).content.decode()
    assert "OPENAI_API_KEY" in content
    assert "sk-very-secret" not in content
    assert secrets.secret_value(workspace.pk, "OPENAI_API_KEY") == "sk-very-secret"
    client.post(at("secrets/delete"), {"key": "OPENAI_API_KEY"})
    assert secrets.secret_value(workspace.pk, "OPENAI_API_KEY") is None


def test_members_are_invited_by_address_and_by_link(workspace, organization, owner, at):
    role = str(system_role(Level.ORGANIZATION, "member").id)
    editor = str(system_role(Level.WORKSPACE, "editor").id)
    client = signed_in(owner)
    form = {"role": role, "workspaces": [str(workspace.pk)], "workspace_role": editor}

    client.post(at("organization-members"), form | {"email": "new@example.com"})
    client.post(at("organization-members"), form | {"email": ""})

    content = client.get(at("organization-members")).content.decode()
    for one in Invitation.objects.all():
        assert invitations.invitation_token(one) in content
    assert Invitation.objects.count() == 2


def test_role_is_created_changed_and_deleted(organization, owner, at):
    client = signed_in(owner)

    client.post(at("roles"), {"display_name": "Reader", "permissions": ["runs:read"]})
    role = Role.objects.get()
    assert (role.level, role.permissions) == ("workspace", ["runs:read"])
    changed = {"display_name": "Reader", "permissions": ["runs:read", "charts:read"]}
    client.post(at(f"roles?role={role.pk}"), changed)
    role.refresh_from_db()
    assert role.permissions == ["runs:read", "charts:read"]
    client.post(at(f"roles/{role.pk}/delete"))
    assert not Role.objects.exists()


def test_ownership_is_transferred_and_the_organization_left(organization, owner, member, at):
    client = signed_in(owner)
    heir = Membership.objects.get(user=member)

    assert client.post(at("organization/leave")).status_code == 409
    client.post(at("organization/transfer-ownership"), {"member": str(heir.pk)})
    assert Membership.objects.get(user=owner).role == "admin"
    assert client.post(at("organization/leave")).status_code == 302

    assert list(Membership.objects.values_list("user__email", "role")) == [
        ("member@example.com", "owner")
    ]


def test_invitation_link_page_accepts_and_declines(workspace, organization, owner, at):
    invitation = invitations.invite(
        organization_id=organization.pk,
        role=system_role(Level.ORGANIZATION, "member"),
        email="new@example.com",
        workspaces={workspace.pk: system_role(Level.WORKSPACE, "viewer")},
    )
    path = f"/invitations/{invitations.invitation_token(invitation)}"
    new = UserFactory(email="new@example.com")

    assert Client().get(path).status_code == 302
    assert signed_in(UserFactory()).post(path).status_code == 403
    assert signed_in(new).get(path).status_code == 200
    assert not Membership.objects.filter(user=new).exists()
    assert signed_in(new).post(path, {"answer": "accept"}).status_code == 302

    assert Membership.objects.get(user=new).role == "member"
    assert WorkspaceMembership.objects.get(user=new).role == "viewer"
    assert signed_in(new).get(path).status_code == 409


def test_tags_are_created_and_deleted(workspace, owner, at):
    client = signed_in(owner)

    client.post(at("tags"), {"key": "Team", "description": ""})
    content = client.get(at("tags"))
    key = content.context["keys"][0]
    client.post(at(f"tags/{key.pk}/values"), {"value": "search"})
    value = key.values.get()
    assert value.value == "search"
    client.post(at(f"tags/{key.pk}/values/{value.pk}/delete"))
    client.post(at(f"tags/{key.pk}/delete"))
    assert client.get(at("tags")).context["keys"].count() == 0


def test_query_counts_of_lists_do_not_grow(
    workspace, organization, owner, at, django_assert_max_num_queries
):
    client = signed_in(owner)
    counts = {}
    for size in (1, 6):
        while Membership.objects.filter(organization=organization).count() < size + 2:
            people_of(workspace, f"more{Membership.objects.count()}")
        for page in ("members", "organization-members", "keys/organization", "roles", "workspaces"):
            with django_assert_max_num_queries(60) as captured:
                client.get(at(page))
            counts.setdefault(page, []).append(len(captured))

    assert {page: few == many for page, (few, many) in counts.items()} == dict.fromkeys(
        counts, True
    )


def test_user_lists_organizations_and_creates_another(organization, owner, member, settings):
    settings.SIGN_UP = False

    assert b"Acme" in signed_in(member).get("/organizations").content
    assert signed_in(member).post("/organizations", {"name": "Mine"}).status_code == 403
    assert signed_in(owner).post("/organizations", {"name": "Acme"}).status_code == 422
    assert signed_in(owner).post("/organizations", {"name": "Second"}).status_code == 302
    assert Membership.objects.filter(organization__name="Second", user=owner).get().role == "owner"
    assert Client().get("/organizations").status_code == 302


def test_user_without_workspaces_sees_the_next_steps(organization):
    new = UserFactory(email="new@example.com")
    page = signed_in(new).get("/", follow=True)

    assert page.request["PATH_INFO"] == "/organizations"
    assert page.status_code == 200


def test_new_user_accepts_an_invitation_on_the_first_page(organization, workspace, settings):
    settings.SIGN_UP = False
    new = UserFactory(email="new@example.com", email_verified_at=timezone.now())
    invitation = invitations.invite(
        organization_id=organization.pk,
        role=system_role(Level.ORGANIZATION, "member"),
        email="new@example.com",
        workspaces={workspace.pk: system_role(Level.WORKSPACE, "viewer")},
    )
    client = signed_in(new)
    content = client.get("/", follow=True).content.decode()

    assert "Join Acme" in content
    assert "Create organization" not in content
    client.post(f"/invitations/{invitations.invitation_token(invitation)}", {"answer": "accept"})
    assert client.get("/").headers["Location"] == f"/o/{workspace.pk}/projects"


def test_identity_provider_users_can_create_an_organization(settings):
    settings.SIGN_UP = False
    new = UserFactory(email="new@example.com")
    client = signed_in(new)

    assert client.post("/organizations", {"name": "Mine"}).status_code == 403
    SocialAccount.objects.create(user=new, provider="oidc", uid="1")
    assert client.post("/organizations", {"name": "Mine"}).status_code == 302
    assert Membership.objects.get(user=new).organization.name == "Mine"


def test_user_without_workspaces_sees_the_administrators(organization, owner):
    new = MembershipFactory(organization=organization).user

    assert owner.email in signed_in(new).get("/organizations").content.decode()
