"""The API of workspaces, members, roles and tags, for each kind of caller."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from apps.api_keys.services import issue_key, issue_personal_key
from apps.organizations.models import (
    Invitation,
    Membership,
    Organization,
    Tagging,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import create_organization
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.factories.api_keys import key_for
from tests.factories.organizations import MembershipFactory, UserFactory, WorkspaceFactory
from tests.organizations.conftest import JsonClient

pytestmark = pytest.mark.django_db

VIEWER = str(system_role(Level.WORKSPACE, "viewer").id)
EDITOR = str(system_role(Level.WORKSPACE, "editor").id)


def request_with_key(secret, method, path, body=None, **headers):
    extra = {} if body is None else {"data": body, "content_type": "application/json"}
    headers = {"X-Api-Key": secret, **headers}
    return getattr(Client(), method)(path, headers=headers, **extra)


class TestWorkspaces:
    def test_user_lists_the_workspaces_that_they_may_enter(
        self, workspace, organization, owner, member
    ):
        other = WorkspaceFactory(organization=organization, name="Other")

        def list_names(user):
            body = JsonClient(user)("get", "/workspaces").json()
            return [(row["display_name"], row["role_name"]) for row in body]

        assert list_names(owner) == [("Home", "Admin"), ("Other", "Admin")]
        assert list_names(member) == [("Home", "Editor")]
        body = request_with_key(key_for(other), "get", "/tenants").json()
        assert [row["id"] for row in body] == [str(other.pk)]

    def test_workspace_json_has_the_fields_of_the_api(self, workspace, member):
        (row,) = JsonClient(member)("get", "/api/v1/workspaces").json()

        assert set(row) == {
            "id", "organization_id", "display_name", "tenant_handle", "is_personal", "is_deleted",
            "created_at", "role_id", "role_name", "permissions", "read_only", "data_plane_url",
        }  # fmt: skip
        assert (row["id"], row["role_id"], row["read_only"]) == (str(workspace.pk), EDITOR, False)

    def test_new_workspace_has_a_project_and_tag_keys(self, organization, owner, client_for):
        created = client_for(owner)(
            "post", "/workspaces", {"display_name": "New", "tenant_handle": "new"}
        )

        workspace = Workspace.objects.get(pk=created.json()["id"])
        assert (workspace.organization, workspace.handle) == (organization, "new")
        projects = Project.objects.for_workspace(workspace)
        assert list(projects.values_list("name", flat=True)) == ["default"]
        new_workspace_client = JsonClient(owner, **{"X-Tenant-Id": str(workspace.pk)})
        keys = new_workspace_client("get", "/workspaces/current/tag-keys").json()
        assert [key["key"] for key in keys] == ["Application", "Environment"]

    def test_repeated_creation_with_the_same_id_returns_the_same_workspace(
        self, organization, owner, client_for
    ):
        body = {"id": "01930000-0000-7000-8000-000000000001", "display_name": "New"}

        first, second = (client_for(owner)("post", "/workspaces", body) for _ in range(2))

        assert first.json()["id"] == second.json()["id"] == body["id"]
        assert organization.workspaces.count() == 2

    def test_workspace_without_a_handle_gets_a_free_one_like_its_name(self, owner, client_for):
        def create(name, handle=None):
            body = {"display_name": name, "tenant_handle": handle}
            return client_for(owner)("post", "/workspaces", body).json()["tenant_handle"]

        setup = create_organization(name="Größe & Söhne, 24", owner=owner)

        assert setup.workspace.handle == "groe-sohne-24"
        assert create("Support_Team") == "support-team"
        assert re.fullmatch("groe-sohne-24-[0-9a-f]{6}", create("Große Söhne 24"))
        assert re.fullmatch("workspace-[0-9a-f]{6}", create("2024"))
        assert create("3 " + "long name " * 9) == "long-name-long-name-long-name-lon"
        assert create("Named", "chosen") == "chosen"

    def test_taken_name_handle_or_id_is_rejected(self, workspace, owner, outsider, client_for):
        foreign = outsider.memberships.get().organization.workspaces.get()
        Workspace.objects.filter(pk=foreign.pk).update(handle="taken")

        for body, code in (
            ({"display_name": "Home"}, "workspace_name_taken"),
            ({"display_name": "A", "tenant_handle": "taken"}, "handle_taken"),
            ({"display_name": "A", "id": str(foreign.pk)}, "conflict"),
        ):
            response = client_for(owner)("post", "/workspaces", body)
            assert (response.status_code, response.json()["code"]) == (409, code)
        assert Workspace.objects.count() == 2

    def test_members_cannot_create_or_change_workspaces(self, workspace, member, client_for):
        path = f"/workspaces/{workspace.pk}"

        assert client_for(member)("post", "/workspaces", {"display_name": "x"}).status_code == 403
        assert client_for(member)("patch", path, {"display_name": "x"}).status_code == 403
        assert client_for(member)("delete", path).status_code == 403
        assert client_for(member)("get", path).json()["display_name"] == "Home"
        assert list(Workspace.objects.values_list("name", flat=True)) == ["Home"]

    def test_deleted_workspace_is_inaccessible_to_all(
        self, workspace, organization, owner, client_for
    ):
        WorkspaceFactory(organization=organization, name="Other")
        project = ensure_project(workspace.pk, "mine")
        secret = key_for(workspace)
        _, organization_key = issue_key(organization=organization, name="wide", scopes=["admin"])

        assert client_for(owner)("delete", f"/workspaces/{workspace.pk}").status_code == 204

        headers = {"X-Tenant-Id": str(workspace.pk)}
        assert request_with_key(secret, "get", "/sessions").status_code == 401
        assert request_with_key(organization_key, "get", "/sessions", **headers).status_code == 403
        assert JsonClient(owner, **headers)("get", "/sessions").status_code == 404
        assert client_for(owner)("get", f"/workspaces/{workspace.pk}").status_code == 404
        assert Project.unscoped.get(pk=project.pk).deleted_at is not None
        listed = JsonClient(owner)("get", "/workspaces?include_deleted=true").json()
        assert [(row["display_name"], row["is_deleted"]) for row in listed] == [
            ("Home", True),
            ("Other", False),
        ]

    def test_last_workspace_cannot_be_deleted(self, workspace, owner, client_for):
        response = client_for(owner)("delete", f"/workspaces/{workspace.pk}")

        assert (response.status_code, response.json()["code"]) == (409, "last_workspace")
        assert not Workspace.objects.get().is_deleted

    def test_the_handle_of_a_workspace_is_changed_by_owners_only(
        self, workspace, owner, member, client_for
    ):
        settings = client_for(member)("get", "/settings").json()
        assert (settings["id"], settings["tenant_handle"]) == (str(workspace.pk), None)

        path, body = "/settings/handle", {"tenant_handle": "acme"}
        assert client_for(member)("post", path, body).status_code == 403
        assert client_for(owner)("post", path, body).json()["tenant_handle"] == "acme"
        assert client_for(owner)("post", path, {"tenant_handle": "Not one"}).status_code == 422


class TestMembers:
    PATH = "/workspaces/current/members"

    def test_member_list_has_members_and_invitations(self, workspace, owner, member, client_for):
        client_for(owner)("post", self.PATH, {"email": "new@example.com", "role_id": VIEWER})

        body = client_for(member)("get", self.PATH).json()

        assert body["tenant_id"] == str(workspace.pk)
        assert [
            (row["email"], row["role_name"], row["org_role_name"], row["access_scope"])
            for row in body["members"]
        ] == [
            ("member@example.com", "Editor", "Organization User", "workspace"),
            ("owner@example.com", "Admin", "Organization Owner", "organization"),
        ]
        (invitation,) = body["pending"]
        assert (invitation["email"], invitation["workspace_role_id"]) == ("new@example.com", VIEWER)
        assert client_for(member)("get", f"{self.PATH}/active").json() == body["members"]
        assert client_for(member)("get", f"{self.PATH}/pending").json() == body["pending"]

    def test_the_access_of_an_administrator_of_all_workspaces_is_not_changed_here(
        self, workspace, owner, member, client_for
    ):
        (row,) = [
            row
            for row in client_for(member)("get", self.PATH).json()["members"]
            if row["email"] == "owner@example.com"
        ]
        path = f"{self.PATH}/{row['id']}"

        assert client_for(owner)("delete", path).status_code == 409
        assert client_for(owner)("patch", path, {"role_id": VIEWER}).status_code == 409
        assert client_for(member)("get", f"{self.PATH}?limit=1").json()["members"] == [
            client_for(member)("get", self.PATH).json()["members"][0]
        ]

    def test_organization_member_is_added_changed_and_removed(
        self, workspace, organization, owner, client_for
    ):
        new = MembershipFactory(organization=organization).user
        call = client_for(owner)

        created = call(
            "post", self.PATH, {"user_id": str(new.pk), "workspace_role_id": VIEWER}
        ).json()
        assert created["role_name"] == "Viewer"
        assert call("post", self.PATH, {"user_id": str(new.pk)}).status_code == 409
        changed = call("patch", f"{self.PATH}/{created['id']}", {"role_id": EDITOR}).json()
        assert changed["role_name"] == "Editor"
        assert call("delete", f"{self.PATH}/{created['id']}").status_code == 204

        assert not WorkspaceMembership.objects.filter(user=new).exists()

    def test_member_batch_is_atomic(self, organization, owner, client_for):
        new = [MembershipFactory(organization=organization).user for _ in range(2)]
        bodies = [{"user_id": str(row.pk)} for row in new]
        outsider = {"user_id": str(UserFactory().pk)}

        rejected = client_for(owner)("post", f"{self.PATH}/batch", [*bodies, outsider])
        assert rejected.status_code == 404
        assert not WorkspaceMembership.objects.exists()
        created = client_for(owner)("post", f"{self.PATH}/batch", bodies)
        assert [row["user_id"] for row in created.json()] == [str(row.pk) for row in new]

    def test_editors_and_outsiders_cannot_change_members(
        self, workspace, member, outsider, client_for
    ):
        membership = WorkspaceMembership.objects.get(user=member)
        path = f"{self.PATH}/{membership.pk}"

        assert client_for(member)("patch", path, {"role_id": VIEWER}).status_code == 403
        assert client_for(member)("delete", path).status_code == 403
        other_workspace = outsider.memberships.get().organization.workspaces.get()
        outsider_client = JsonClient(outsider, **{"X-Tenant-Id": str(other_workspace.pk)})
        assert outsider_client("delete", path).status_code == 404
        membership.refresh_from_db()
        assert membership.role == "editor"


class TestOrganization:
    def test_user_lists_and_creates_organizations(self, organization, owner, outsider):
        call = JsonClient(owner)

        assert [row["id"] for row in call("get", "/orgs").json()] == [str(organization.pk)]
        created = call("post", "/orgs", {"display_name": "Second"})
        assert created.status_code == 200
        assert call("post", "/orgs", {"display_name": "Elsewhere"}).status_code == 409
        second = Organization.objects.get(name="Second")
        assert second.memberships.get().user == owner
        assert second.workspaces.get().name == "Default"

    def test_user_cannot_create_an_organization_while_sign_up_is_closed(self, member, settings):
        settings.SIGN_UP = False
        assert JsonClient(member)("post", "/orgs", {"display_name": "Mine"}).status_code == 403

        settings.SIGN_UP = True
        assert JsonClient(member)("post", "/orgs", {"display_name": "Mine"}).status_code == 200

    def test_user_of_several_organizations_must_name_one(self, organization, owner):
        second = MembershipFactory(user=owner, role="viewer").organization

        assert JsonClient(owner)("get", "/orgs/current").status_code == 403
        for selected in (organization, second):
            call = JsonClient(owner, **{"X-Organization-Id": str(selected.pk)})
            assert call("get", "/orgs/current").json()["id"] == str(selected.pk)
        elsewhere = WorkspaceFactory().organization
        call = JsonClient(owner, **{"X-Organization-Id": str(elsewhere.pk)})
        assert call("get", "/orgs/current").status_code == 404

    def test_admins_set_policies_which_are_enforced(self, organization, admin, member, client_for):
        path, body = "/orgs/current/info", {"public_sharing_disabled": True, "display_name": "New"}

        assert client_for(member)("patch", path, body).status_code == 403
        changed = client_for(admin)("patch", path, body).json()
        assert (changed["display_name"], changed["public_sharing_disabled"]) == ("New", True)
        assert client_for(member)("get", path).json()["public_sharing_disabled"] is True

    def test_personal_keys_can_be_disabled(
        self, organization, workspace, owner, member, client_for
    ):
        _, secret = issue_personal_key(
            organization_id=organization.pk, person=member, name="x", workspace_id=workspace.pk
        )

        client_for(owner)("patch", "/orgs/current/info", {"pat_creation_disabled": True})

        assert request_with_key(secret, "get", "/sessions").status_code == 401
        rejected = client_for(member)("post", "/api-key/current", {"description": "y"})
        assert (rejected.status_code, rejected.json()["code"]) == (403, "personal_keys_disabled")

    def test_custom_roles_are_created_changed_and_deleted(self, owner, member, client_for):
        body = client_for(member)("get", "/orgs/current/roles").json()
        assert [role["name"] for role in body] == [
            "ORGANIZATION_OWNER", "ORGANIZATION_ADMIN", "ORGANIZATION_USER",
            "ORGANIZATION_VIEWER", "WORKSPACE_ADMIN", "WORKSPACE_USER", "WORKSPACE_VIEWER",
            "WORKSPACE_ANNOTATOR",
        ]  # fmt: skip
        permissions = {row["name"] for row in client_for(member)("get", "/orgs/permissions").json()}
        assert {"runs:read", "owners:manage"} < permissions
        body = {"display_name": "Reader", "permissions": ["runs:read"]}
        assert client_for(member)("post", "/orgs/current/roles", body).status_code == 403
        created = client_for(owner)("post", "/orgs/current/roles", body).json()
        assert (created["name"], created["access_scope"]) == ("CUSTOM", "workspace")
        path = f"/orgs/current/roles/{created['id']}"
        rejected = client_for(owner)("patch", path, {"permissions": ["people:manage"]})
        assert rejected.status_code == 422
        assert client_for(owner)("patch", path, {"description": "x"}).json()["description"] == "x"
        assert client_for(owner)("delete", f"/orgs/current/roles/{VIEWER}").status_code == 403
        assert client_for(owner)("delete", path).status_code == 204

    def test_organization_members_are_invited_changed_and_removed(
        self, workspace, owner, member, client_for
    ):
        call, path = client_for(owner), "/orgs/current/members"
        body = {"email": "new@example.com", "workspace_ids": [str(workspace.pk)]}

        invited = call("post", path, body).json()
        assert "/invitations/" in invited["invite_url"]
        assert "invite_url" not in client_for(member)("get", f"{path}/pending").json()[0]
        batch = [{"email": "a@example.com"}, {"email": "b@example.com"}]
        assert len(call("post", f"{path}/batch", batch).json()) == 2
        assert call("delete", f"{path}/{invited['id']}/pending").status_code == 204
        body = call("get", path).json()
        assert [row["email"] for row in body["members"]] == [
            "member@example.com",
            "owner@example.com",
        ]
        assert len(body["pending"]) == 2
        membership = Membership.objects.get(user=member)
        admin = str(system_role(Level.ORGANIZATION, "admin").id)
        assert (
            client_for(member)("patch", f"{path}/{membership.pk}", {"role_id": admin}).status_code
            == 403
        )
        changed = call("patch", f"{path}/{membership.pk}", {"role_id": admin}).json()
        assert changed["role_name"] == "Organization Admin"
        assert call("delete", f"{path}/{membership.pk}").status_code == 204
        last = Membership.objects.get()
        rejected = call("delete", f"{path}/{last.pk}")
        assert (rejected.status_code, rejected.json()["code"]) == (409, "last_owner")

    def test_user_accepts_and_declines_invitations(self, workspace, owner, client_for):
        new = UserFactory(email="new@example.com", email_verified_at=timezone.now())
        for target_workspace in (workspace, WorkspaceFactory()):
            inviter = MembershipFactory(
                organization=target_workspace.organization, role="owner"
            ).user
            inviter_client = JsonClient(inviter, **{"X-Tenant-Id": str(target_workspace.pk)})
            body = {"email": new.email, "workspace_ids": [str(target_workspace.pk)]}
            assert inviter_client("post", "/orgs/current/members", body).status_code == 200
        call = JsonClient(new)

        invitation_ids = {
            row["organization_name"]: row["id"] for row in call("get", "/orgs/pending").json()
        }
        assert (
            call("post", f"/workspaces/pending/{invitation_ids.pop('Acme')}/claim").status_code
            == 200
        )
        (other,) = invitation_ids.values()
        assert call("delete", f"/orgs/pending/{other}").status_code == 204

        assert call("get", "/orgs/pending").json() == []
        assert [row["display_name"] for row in call("get", "/orgs").json()] == ["Acme"]
        assert Invitation.objects.get(pk=other).declined_at is not None

    def test_service_key_has_no_user(self, workspace):
        secret = key_for(workspace)

        for path in ("/orgs", "/orgs/pending", "/me/ls_user_id", "/api-key/current"):
            assert request_with_key(secret, "get", path).status_code == 404, path

    def test_unsupported_routes_are_404(self, owner, client_for):
        for path in (
            "/orgs/current/sso-settings",
            "/orgs/current/login-methods",
            "/v1/platform/orgs/current/scim/tokens",
            "/v1/platform/orgs/current/access-policies",
        ):
            response = client_for(owner)("get", path)
            assert (response.status_code, response.json()["code"]) == (404, "not_found"), path

    def test_current_user_id_is_returned(self, owner, client_for):
        assert client_for(owner)("get", "/me/ls_user_id").json() == {"ls_user_id": str(owner.pk)}


class TestTags:
    PATH = "/workspaces/current"

    def test_a_project_is_tagged_counted_and_untagged(self, workspace, member, client_for):
        call, project = client_for(member), ensure_project(workspace.pk, "mine")
        ensure_project(workspace.pk, "other")
        key = call("post", f"{self.PATH}/tag-keys", {"key": "Team"}).json()
        values = f"{self.PATH}/tag-keys/{key['id']}/tag-values"
        search, chat = (call("post", values, {"value": row}).json() for row in ("search", "chat"))
        resource = {"resource_type": "project", "resource_id": str(project.pk)}

        call("post", f"{self.PATH}/taggings", {"tag_value_id": search["id"], **resource})
        tagging = call(
            "post", f"{self.PATH}/taggings", {"tag_value_id": chat["id"], **resource}
        ).json()

        query = f"resource_type=project&resource_id={project.pk}"
        (body,) = call("get", f"{self.PATH}/tags/resource?{query}").json()
        assert (body["key"], body["value"]["value"]) == ("Team", "chat")
        resources = {"resource_type": "project", "resource_ids": [str(project.pk)]}
        assert call("post", f"{self.PATH}/tags/resources", resources).json() == {
            str(project.pk): [body]
        }
        counts = call("get", f"{self.PATH}/stats?tag_value_id={chat['id']}").json()
        assert counts["tracer_session_count"] == 1
        assert call("get", f"{self.PATH}/stats").json()["tracer_session_count"] == 2
        assert call("delete", f"{self.PATH}/taggings/{tagging['id']}").status_code == 204
        assert not Tagging.objects.for_workspace(workspace).exists()

    def test_resource_of_another_workspace_cannot_be_tagged(self, workspace, member, client_for):
        call, foreign = client_for(member), ensure_project(WorkspaceFactory().pk, "theirs")
        key = call("post", f"{self.PATH}/tag-keys", {"key": "Team"}).json()
        values = f"{self.PATH}/tag-keys/{key['id']}/tag-values"
        value = call("post", values, {"value": "x"}).json()
        body = {"tag_value_id": value["id"], "resource_type": "project"}

        for resource_id in (foreign.pk, value["id"]):
            response = call(
                "post", f"{self.PATH}/taggings", body | {"resource_id": str(resource_id)}
            )
            assert response.status_code == 404
        assert call("post", values, {"value": "x"}).json()["code"] == "tag_taken"
        assert not Tagging.unscoped.exists()
