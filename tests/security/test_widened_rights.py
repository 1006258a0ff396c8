"""Callers get no rights that they do not have, through roles or an impersonated session."""

from __future__ import annotations

import contextlib
import json
import re

import httpx
import pytest

from apps.audit.models import Entry
from apps.organizations.errors import PermissionEscalation
from apps.organizations.models import (
    Invitation,
    Membership,
    Role,
    WorkspaceMembership,
    WorkspaceSecret,
)
from apps.organizations.permissions import Level, permission_names
from apps.organizations.services import caller_for, organization_caller_for, roles
from tests.factories.agent_server import AgentFactory
from tests.factories.organizations import (
    MembershipFactory,
    RoleFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
    signed_in_client,
)

ALL = list(permission_names(Level.WORKSPACE))
HELPER = ["workspace:read", "runs:read"]
PASSWORD = "a long and odd password"

_CREATE = """
import json, secrets
from apps.organizations.models import *
from apps.organizations.services import members, roles
from apps.organizations.services.organizations import create_organization
from apps.organizations.permissions import Level
tag = secrets.token_hex(4)
make = lambda name: User.objects.create_user(f"{{name}}-{{tag}}@example.com", {password!r})
owner, helper = make("owner"), make("helper")
operator = User.objects.create_superuser(f"operator-{{tag}}@example.com", {password!r})
setup = create_organization(name=f"Acme {{tag}}", owner=owner)
organization = setup.organization.pk
managing = roles.create_role(
    organization_id=organization, level=Level.ORGANIZATION, display_name="Role manager",
    permissions=["organization:read", "roles:manage"],
)
helping = roles.create_role(
    organization_id=organization, level=Level.WORKSPACE, display_name="Helper",
    permissions={helper!r},
)
membership = Membership(organization_id=organization, user=helper)
membership.hold(managing)
membership.save()
members.add_to_workspace(workspace=setup.workspace, user=helper, role=helping)
print(json.dumps({{
    "workspace": str(setup.workspace.pk), "role": str(helping.pk), "owner_id": str(owner.pk),
    "owner": owner.email, "helper": helper.email, "operator": operator.email,
}}))
"""


@pytest.fixture(scope="module")
def acme(live):
    """An organization of the live platform with an owner and a member who manages roles."""
    code = _CREATE.format(password=PASSWORD, helper=HELPER)
    return json.loads(live.manage("shell", "-c", code).stdout.splitlines()[-1])


class Browser:
    """A signed-in session of the live platform."""

    def __init__(self, url):
        self.client = httpx.Client(base_url=url, headers={"Accept": "text/html"}, timeout=60)

    def sign_in(self, email):
        self.client.get("/sign-in")
        assert self.post("/sign-in", email=email, password=PASSWORD).status_code == 302

    def post(self, path, **fields):
        token = self.client.cookies["slipway_csrf"]
        return self.client.post(path, data={"csrfmiddlewaretoken": token, **fields})

    def api(self, method, path, workspace, body=None):
        headers = {
            "X-CSRFToken": self.client.cookies["slipway_csrf"],
            "X-Tenant-Id": workspace,
            "Accept": "application/json",
        }
        return self.client.request(method, path, headers=headers, json=body)


@pytest.fixture
def browse(live):
    """A function that signs a user in; the connections are closed after the test."""
    with contextlib.ExitStack() as stack:

        def sign_in(email):
            browser = Browser(live.url)
            stack.enter_context(browser.client)
            browser.sign_in(email)
            return browser

        yield sign_in


def test_role_manager_does_not_become_workspace_admin_on_a_live_platform(browse, acme):
    helper = browse(acme["helper"])
    workspace, settings = acme["workspace"], f"/o/{acme['workspace']}/settings"
    full = {"display_name": "Helper", "permissions": ALL}

    statuses = [
        helper.post(f"{settings}/roles?role={acme['role']}", **full).status_code,
        helper.api("PATCH", f"/orgs/current/roles/{acme['role']}", workspace, full).status_code,
        helper.api(
            "PATCH",
            f"/orgs/current/roles/{acme['role']}",
            workspace,
            {"permissions": [*HELPER, "members:manage"]},
        ).status_code,
        helper.api(
            "POST", "/orgs/current/roles", workspace, {"display_name": "New", "permissions": ALL}
        ).status_code,
    ]

    assert statuses == [422, 403, 403, 403]
    role_list = helper.api("GET", "/orgs/current/roles", workspace).json()
    assert [role["permissions"] for role in role_list if role["id"] == acme["role"]] == [
        sorted(HELPER, key=ALL.index)
    ]


def test_impersonating_operator_cannot_grant_lasting_access_on_a_live_platform(browse, acme):
    operator = browse(acme["operator"])
    workspace, settings = acme["workspace"], f"/o/{acme['workspace']}/settings"
    owner = browse(acme["owner"])
    page = owner.client.get(f"{settings}/organization-members")
    started = operator.post(f"/admin/impersonate/{acme['owner_id']}/")
    assert (page.status_code, started.status_code) == (200, 302)

    attempts = [
        operator.api(
            "POST", "/orgs/current/members", workspace, {"email": "accomplice@example.com"}
        ),
        operator.api("POST", "/orgs/current/members", workspace, {}),
        operator.api(
            "POST", "/workspaces/current/members", workspace, {"email": "accomplice@example.com"}
        ),
        operator.api(
            "POST", "/orgs/current/roles", workspace, {"display_name": "R", "permissions": ALL}
        ),
        operator.api(
            "PATCH", f"/orgs/current/roles/{acme['role']}", workspace, {"permissions": ALL}
        ),
        operator.api("POST", "/api-key", workspace, {"description": "mine"}),
        operator.client.get("/account/password"),
    ]

    assert [attempt.status_code for attempt in attempts] == [403] * len(attempts), [
        attempt.text for attempt in attempts
    ]
    invited = owner.api("GET", "/orgs/current/members/pending", workspace)
    assert invited.json() == []


def member_with(workspace, organization_permissions, workspace_permissions=None):
    """A member with custom roles of these permissions; returns their organization caller."""
    organization = workspace.organization
    user = MembershipFactory(
        organization=organization,
        role="",
        custom_role=RoleFactory(
            organization=organization,
            level=Level.ORGANIZATION,
            permissions=organization_permissions,
        ),
    ).user
    if workspace_permissions is not None:
        role = RoleFactory(organization=organization, permissions=workspace_permissions)
        WorkspaceMembership.objects.create(
            workspace=workspace, user=user, role="", custom_role=role
        )
    return user


def organization_caller(user, workspace):
    return organization_caller_for(user=user, organization_id=workspace.organization_id)


def create(by, workspace, permissions):
    return roles.create_role(
        organization_id=workspace.organization_id,
        level=Level.WORKSPACE,
        display_name="New",
        permissions=permissions,
        by=by,
    )


@pytest.mark.django_db
def test_role_manager_cannot_widen_their_own_workspace_role(workspace):
    user = member_with(workspace, ["organization:read", "roles:manage"], HELPER)
    own = WorkspaceMembership.objects.get(user=user).custom_role

    with pytest.raises(PermissionEscalation) as raised:
        roles.update_role(
            role=own,
            changes={"permissions": [*HELPER, "keys:manage"]},
            by=organization_caller(user, workspace),
        )

    assert raised.value.errors == [{"permission": "keys:manage"}]
    assert caller_for(user=user, workspace_id=workspace.pk).permissions == set(HELPER)
    assert not Entry.objects.filter(action="role.updated").exists()


@pytest.mark.django_db
def test_role_manager_handles_the_permissions_that_they_have_in_each_workspace(workspace):
    user = member_with(workspace, ["organization:read", "roles:manage"], HELPER)
    by = organization_caller(user, workspace)
    elevated = RoleFactory(organization=workspace.organization, permissions=["keys:manage"])

    assert create(by, workspace, ["runs:read"]).permissions == ["runs:read"]
    with pytest.raises(PermissionEscalation):
        roles.update_role(role=elevated, changes={"permissions": []}, by=by)

    WorkspaceFactory(organization=workspace.organization)
    with pytest.raises(PermissionEscalation):
        create(by, workspace, ["runs:read"])


@pytest.mark.django_db
def test_role_manager_who_administers_workspaces_sets_any_workspace_permission(workspace):
    user = member_with(workspace, ["organization:read", "roles:manage", "workspaces:administer"])

    role = create(organization_caller(user, workspace), workspace, ALL)

    assert role.permissions == ALL


@pytest.mark.django_db
def test_role_check_has_a_constant_number_of_queries(workspace, django_assert_num_queries):
    user = member_with(workspace, ["organization:read", "roles:manage"], HELPER)
    by = organization_caller(user, workspace)
    for _ in range(2):
        with django_assert_num_queries(2), pytest.raises(PermissionEscalation):
            roles._validate_permissions(Level.WORKSPACE, ["keys:manage"], by)
        for _ in range(4):
            other = WorkspaceFactory(organization=workspace.organization)
            WorkspaceMembership.objects.create(workspace=other, user=user, role="viewer")


@pytest.fixture
def owner(workspace):
    return MembershipFactory(organization=workspace.organization, role="owner").user


@pytest.fixture
def impersonating(owner):
    """The session of an operator who acts as the owner."""
    client = signed_in_client(UserFactory(is_staff=True, is_superuser=True))
    assert client.post(f"/admin/impersonate/{owner.pk}/").status_code == 302
    return client


@pytest.mark.django_db
def test_impersonated_session_grants_no_lasting_access(workspace, owner, impersonating):
    organization = workspace.organization
    role = RoleFactory(organization=organization, permissions=HELPER)
    member = MembershipFactory(organization=organization)
    helper = WorkspaceMembershipFactory(workspace=workspace)
    agent = AgentFactory(workspace=workspace)
    headers = {"X-Tenant-Id": str(workspace.pk)}
    requests = {
        "invite": ("post", "/orgs/current/members", {"email": "accomplice@example.com"}),
        "invite by link": ("post", "/orgs/current/members", {}),
        "invite to the workspace": (
            "post", "/workspaces/current/members", {"email": "accomplice@example.com"},
        ),
        "add a member": ("post", "/workspaces/current/members", {"user_id": str(member.user_id)}),
        "change a role": (
            "patch", f"/orgs/current/members/{member.pk}", {"role_id": str(admin_role_id())},
        ),
        "change a workspace role": (
            "patch", f"/workspaces/current/members/{helper.pk}", {"role_id": admin_role_id("w")},
        ),
        "create a role": ("post", "/orgs/current/roles", {"display_name": "R", "permissions": ALL}),
        "change the permissions": (
            "patch", f"/orgs/current/roles/{role.pk}", {"permissions": ALL},
        ),
        "create a key": ("post", "/api-key", {"description": "mine"}),
        "create a personal key": ("post", "/api-key/current", {"description": "mine"}),
        "send the calls of models elsewhere": (
            "post", "/workspaces/current/secrets",
            [{"key": "OPENAI_BASE_URL", "value": "https://operator.example/v1"}],
        ),
        "replace the webhook secret": ("post", f"/v2/deployments/{agent.pk}/webhook-secret", {}),
        "read the webhook secret": ("get", f"/v2/deployments/{agent.pk}/webhook-secret", None),
    }  # fmt: skip
    before = state(organization)

    statuses = {}
    for name, (method, path, body) in requests.items():
        extra = {} if body is None else {"data": body, "content_type": "application/json"}
        response = getattr(impersonating, method)(path, headers=headers, **extra)
        statuses[name] = response.status_code

    assert statuses == dict.fromkeys(requests, 403)
    assert state(organization) == before


def admin_role_id(level="o"):
    names = {"o": Level.ORGANIZATION, "w": Level.WORKSPACE}
    return str(roles.system_role(names[level], "admin").id)


def state(organization):
    return [
        list(rows.order_by("pk").values())
        for rows in (
            WorkspaceSecret.objects.across_workspaces(reason="compares all").filter(
                workspace__organization=organization
            ),
            Membership.objects.filter(organization=organization),
            WorkspaceMembership.objects.filter(workspace__organization=organization),
            Invitation.objects.filter(organization=organization),
            Role.objects.filter(organization=organization),
        )
    ]


@pytest.mark.django_db
def test_impersonated_session_does_not_see_invitation_links(workspace, owner, impersonating):
    client = signed_in_client(owner)
    headers = {"X-Tenant-Id": str(workspace.pk)}
    path = f"/o/{workspace.pk}/settings/organization-members"
    body = {"role_id": None}
    created = client.post(
        "/orgs/current/members", body, content_type="application/json", headers=headers
    )
    assert created.status_code == 200, created.content
    link = re.compile(rb"/invitations/[\w-]{43}")

    for page in (path, "/orgs/current/members/pending"):
        assert link.search(client.get(page, headers=headers).content), page
        assert not link.search(impersonating.get(page, headers=headers).content), page


@pytest.mark.django_db
def test_impersonated_session_accepts_no_invitation(workspace, owner, impersonating):
    other = WorkspaceFactory()
    inviter = MembershipFactory(organization=other.organization, role="owner").user
    created = signed_in_client(inviter).post(
        "/orgs/current/members",
        {},
        content_type="application/json",
        headers={"X-Tenant-Id": str(other.pk)},
    )
    link = re.search(rb"/invitations/[\w-]{43}", created.content)[0].decode()

    assert impersonating.post(link).status_code == 403
    assert not Membership.objects.filter(organization=other.organization, user=owner).exists()
