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
from apps.organizations.services import invitations, workspaces
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    create_marked_rows,
    signed_in_client,
)

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


@pytest.fixture
def page_url(workspace):
    return lambda page: f"/o/{workspace.pk}/settings/{page}"


@pytest.mark.parametrize("page", PAGES)
def test_owner_can_open_every_page_and_an_outsider_none(page, workspace, owner, outsider, page_url):
    create_marked_rows(workspace, "marked")

    response = signed_in_client(owner).get(page_url(page))

    assert response.status_code == 200
    assert PAGES[page] in [template.name for template in response.templates]
    assert signed_in_client(outsider).get(page_url(page)).status_code == 404
    assert Client().get(page_url(page)).status_code == 302


@pytest.mark.parametrize("page", PAGES)
def test_member_can_open_the_permitted_pages(page, workspace, owner, member, page_url):
    response = signed_in_client(member).get(page_url(page))

    assert response.status_code == (200 if page in OPEN_TO_MEMBERS else 403)


def test_navigation_shows_the_permitted_pages(member, owner, page_url):
    content = signed_in_client(member).get(page_url("general")).content.decode()

    assert "/settings/organization-members" in content
    assert "/settings/keys/organization" not in content
    assert (
        "/settings/keys/organization"
        in signed_in_client(owner).get(page_url("general")).content.decode()
    )


def test_workspace_is_renamed_and_deleted_after_confirmation(
    workspace, organization, owner, page_url
):
    organization.workspaces.create(name="Other")
    client = signed_in_client(owner)

    assert client.post(page_url("general"), {"name": "New", "handle": "acme"}).status_code == 302
    assert client.post(page_url("general"), {"name": "New", "handle": "No!"}).status_code == 422
    assert client.post(page_url("general/delete"), {"name": "Home"}).status_code == 400
    assert Workspace.objects.present().filter(name="New", handle="acme").exists()
    assert client.post(page_url("general/delete"), {"name": "New"}).status_code == 302

    workspace.refresh_from_db()
    assert workspace.is_deleted
    assert client.get(page_url("general")).status_code == 404


def test_organization_member_is_added_changed_and_removed(workspace, organization, owner, page_url):
    new_user = MembershipFactory(organization=organization, user__email="new@example.com").user
    viewer, editor = (system_role(Level.WORKSPACE, name) for name in ("viewer", "editor"))
    client = signed_in_client(owner)

    client.post(page_url("members"), {"user": str(new_user.pk), "role": str(viewer.id)})
    row = WorkspaceMembership.objects.get(user=new_user)
    assert (row.workspace, row.role) == (workspace, "viewer")
    client.post(page_url(f"members/{row.pk}/role"), {"role": str(editor.id)})
    row.refresh_from_db()
    assert row.role == "editor"
    client.post(page_url(f"members/{row.pk}/remove"))
    assert not WorkspaceMembership.objects.filter(user=new_user).exists()


def test_member_can_leave_a_workspace_but_not_remove_others(workspace, owner, member, page_url):
    other = create_marked_rows(workspace, "other")["identity_id"]
    own = WorkspaceMembership.objects.get(user=member)
    client = signed_in_client(member)

    assert client.post(page_url(f"members/{other}/remove")).status_code == 403
    assert client.post(page_url(f"members/{own.pk}/remove")).status_code == 302
    assert list(WorkspaceMembership.objects.values_list("pk", flat=True)) == [other]


def test_a_key_is_shown_once_rotated_and_revoked(workspace, owner, page_url):
    client = signed_in_client(owner)

    response = client.post(page_url("keys"), {"name": "CI", "scope": "read", "lifetime": "30"})
    secret = re.search(r"slip_[\w-]{43}", response.content.decode())[0]
    assert caller_for_key(secret=secret).workspace_id == workspace.pk
    assert secret not in client.get(page_url("keys")).content.decode()

    key = ApiKey.objects.get(name="CI")
    form = {"kind": "workspace", "overlap": "3600"}
    rotated = client.post(page_url(f"keys/{key.pk}/rotate"), form)
    new_secret = re.search(r"slip_[\w-]{43}", rotated.content.decode())[0]
    assert caller_for_key(secret=new_secret).key_id == key.pk
    assert new_secret != secret

    client.post(page_url(f"keys/{key.pk}/revoke"), {"kind": "workspace"})
    key.refresh_from_db()
    assert not key.is_live


def test_administrator_can_revoke_but_not_rotate_the_personal_key_of_another_user(
    workspace, owner, member, page_url
):
    signed_in_client(member).post(
        page_url("keys/personal"), {"name": "Laptop", "scope": "admin", "lifetime": ""}
    )
    key = ApiKey.objects.get()
    form = {"kind": "organization", "overlap": "0"}
    rotate_url = page_url(f"keys/{key.pk}/rotate")
    client = signed_in_client(owner)

    assert client.post(rotate_url, form).status_code == 403
    assert ApiKey.objects.get().digest == key.digest
    assert rotate_url not in client.get(page_url("keys/organization")).content.decode()
    assert rotate_url in signed_in_client(member).get(page_url("keys/personal")).content.decode()
    assert signed_in_client(member).post(rotate_url, form).status_code == 200
    assert client.post(page_url(f"keys/{key.pk}/revoke"), form).status_code == 302


def test_member_can_create_personal_keys_only(workspace, member, owner, page_url):
    client = signed_in_client(member)

    response = client.post(
        page_url("keys/personal"), {"name": "Laptop", "scope": "admin", "lifetime": ""}
    )

    secret = re.search(r"slip_pt_[\w-]{43}", response.content.decode())[0]
    assert caller_for_key(secret=secret).user_id == member.pk
    assert client.post(page_url("keys"), {"name": "x", "scope": "read"}).status_code == 403
    assert (
        client.post(page_url("keys/organization"), {"name": "x", "scope": "read"}).status_code
        == 403
    )
    assert ApiKey.objects.count() == 1
    key = ApiKey.objects.get()
    viewer = MembershipFactory(organization=workspace.organization, role="viewer").user
    assert signed_in_client(viewer).post(page_url(f"keys/{key.pk}/revoke")).status_code == 404
    assert signed_in_client(owner).post(page_url(f"keys/{key.pk}/revoke")).status_code == 302


def test_organization_key_is_created_on_the_page(workspace, owner, page_url):
    response = signed_in_client(owner).post(
        page_url("keys/organization"), {"name": "All", "scope": "admin", "lifetime": ""}
    )

    secret = re.search(r"slip_[\w-]{43}", response.content.decode())[0]
    assert ApiKey.objects.get().is_organization_wide
    with pytest.raises(errors.Forbidden):
        caller_for_key(secret=secret)


def test_secrets_are_set_and_never_shown(workspace, owner, page_url):
    client = signed_in_client(owner)

    client.post(page_url("secrets"), {"key": "OPENAI_API_KEY", "value": "sk-very-secret"})

    content = client.get(page_url("secrets")).content.decode()
    assert "OPENAI_API_KEY" in content
    assert "sk-very-secret" not in content
    assert workspaces.secret_value(workspace.pk, "OPENAI_API_KEY") == "sk-very-secret"
    client.post(page_url("secrets/delete"), {"key": "OPENAI_API_KEY"})
    assert workspaces.secret_value(workspace.pk, "OPENAI_API_KEY") is None


def test_members_are_invited_by_address_and_by_link(workspace, organization, owner, page_url):
    role = str(system_role(Level.ORGANIZATION, "member").id)
    editor = str(system_role(Level.WORKSPACE, "editor").id)
    client = signed_in_client(owner)
    form = {"role": role, "workspaces": [str(workspace.pk)], "workspace_role": editor}

    client.post(page_url("organization-members"), form | {"email": "new@example.com"})
    client.post(page_url("organization-members"), form | {"email": ""})

    content = client.get(page_url("organization-members")).content.decode()
    for invitation in Invitation.objects.all():
        assert invitations.invitation_token(invitation) in content
    assert Invitation.objects.count() == 2


def test_role_is_created_changed_and_deleted(organization, owner, page_url):
    client = signed_in_client(owner)

    client.post(page_url("roles"), {"display_name": "Reader", "permissions": ["runs:read"]})
    role = Role.objects.get()
    assert (role.level, role.permissions) == ("workspace", ["runs:read"])
    changed = {"display_name": "Reader", "permissions": ["runs:read", "charts:read"]}
    client.post(page_url(f"roles?role={role.pk}"), changed)
    role.refresh_from_db()
    assert role.permissions == ["runs:read", "charts:read"]
    client.post(page_url(f"roles/{role.pk}/delete"))
    assert not Role.objects.exists()


def test_ownership_is_transferred_and_the_organization_left(organization, owner, member, page_url):
    client = signed_in_client(owner)
    new_owner = Membership.objects.get(user=member)

    assert client.post(page_url("organization/leave")).status_code == 409
    client.post(page_url("organization/transfer-ownership"), {"member": str(new_owner.pk)})
    assert Membership.objects.get(user=owner).role == "admin"
    assert client.post(page_url("organization/leave")).status_code == 302

    assert list(Membership.objects.values_list("user__email", "role")) == [
        ("member@example.com", "owner")
    ]


def test_invitation_link_page_accepts_and_declines(workspace, organization, owner, page_url):
    invitation = invitations.invite(
        organization_id=organization.pk,
        role=system_role(Level.ORGANIZATION, "member"),
        email="new@example.com",
        workspaces={workspace.pk: system_role(Level.WORKSPACE, "viewer")},
    )
    path = f"/invitations/{invitations.invitation_token(invitation)}"
    new_user = UserFactory(email="new@example.com")

    assert Client().get(path).status_code == 302
    assert signed_in_client(UserFactory()).post(path).status_code == 403
    assert signed_in_client(new_user).get(path).status_code == 200
    assert not Membership.objects.filter(user=new_user).exists()
    assert signed_in_client(new_user).post(path, {"answer": "accept"}).status_code == 302

    assert Membership.objects.get(user=new_user).role == "member"
    assert WorkspaceMembership.objects.get(user=new_user).role == "viewer"
    assert signed_in_client(new_user).get(path).status_code == 409


def test_tags_are_created_and_deleted(workspace, owner, page_url):
    client = signed_in_client(owner)

    client.post(page_url("tags"), {"key": "Team", "description": ""})
    content = client.get(page_url("tags"))
    key = content.context["keys"][0]
    client.post(page_url(f"tags/{key.pk}/values"), {"value": "search"})
    value = key.values.get()
    assert value.value == "search"
    client.post(page_url(f"tags/{key.pk}/values/{value.pk}/delete"))
    client.post(page_url(f"tags/{key.pk}/delete"))
    assert client.get(page_url("tags")).context["keys"].count() == 0


def test_query_counts_of_lists_do_not_grow(
    workspace, organization, owner, page_url, django_assert_max_num_queries
):
    client = signed_in_client(owner)
    counts = {}
    for size in (1, 6):
        while Membership.objects.filter(organization=organization).count() < size + 2:
            create_marked_rows(workspace, f"more{Membership.objects.count()}")
        for page in ("members", "organization-members", "keys/organization", "roles", "workspaces"):
            with django_assert_max_num_queries(60) as captured:
                client.get(page_url(page))
            counts.setdefault(page, []).append(len(captured))

    assert {page: few == many for page, (few, many) in counts.items()} == dict.fromkeys(
        counts, True
    )


def test_user_lists_organizations_and_creates_another(organization, owner, member, settings):
    settings.SIGN_UP = False

    assert b"Acme" in signed_in_client(member).get("/organizations").content
    assert signed_in_client(member).post("/organizations", {"name": "Mine"}).status_code == 403
    assert signed_in_client(owner).post("/organizations", {"name": "Acme"}).status_code == 422
    assert signed_in_client(owner).post("/organizations", {"name": "Second"}).status_code == 302
    assert Membership.objects.filter(organization__name="Second", user=owner).get().role == "owner"
    assert Client().get("/organizations").status_code == 302


def test_user_without_workspaces_sees_the_next_steps(organization):
    new_user = UserFactory(email="new@example.com")
    page = signed_in_client(new_user).get("/", follow=True)

    assert page.request["PATH_INFO"] == "/organizations"
    assert page.status_code == 200


def test_new_user_accepts_an_invitation_on_the_first_page(organization, workspace, settings):
    settings.SIGN_UP = False
    new_user = UserFactory(email="new@example.com", email_verified_at=timezone.now())
    invitation = invitations.invite(
        organization_id=organization.pk,
        role=system_role(Level.ORGANIZATION, "member"),
        email="new@example.com",
        workspaces={workspace.pk: system_role(Level.WORKSPACE, "viewer")},
    )
    client = signed_in_client(new_user)
    content = client.get("/", follow=True).content.decode()

    assert "Join Acme" in content
    assert "Create organization" not in content
    client.post(f"/invitations/{invitations.invitation_token(invitation)}", {"answer": "accept"})
    assert client.get("/").headers["Location"] == f"/o/{workspace.pk}/projects"


def test_identity_provider_users_can_create_an_organization(settings):
    settings.SIGN_UP = False
    new_user = UserFactory(email="new@example.com")
    client = signed_in_client(new_user)

    assert client.post("/organizations", {"name": "Mine"}).status_code == 403
    SocialAccount.objects.create(user=new_user, provider="oidc", uid="1")
    assert client.post("/organizations", {"name": "Mine"}).status_code == 302
    assert Membership.objects.get(user=new_user).organization.name == "Mine"


def test_user_without_workspaces_sees_the_administrators(organization, owner):
    new_user = MembershipFactory(organization=organization).user

    assert owner.email in signed_in_client(new_user).get("/organizations").content.decode()
