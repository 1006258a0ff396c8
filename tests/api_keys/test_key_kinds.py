"""Service and personal keys: access, expiry and rotation."""

from datetime import timedelta

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from apps.api_keys import services
from apps.api_keys.errors import KeyLifetimeTooLong, WorkspaceRequired
from apps.api_keys.models import ApiKey
from apps.core import errors
from apps.organizations.models import Membership, Organization, WorkspaceMembership
from apps.organizations.permissions import Permission
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import (
    MembershipFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor():
    return WorkspaceMembershipFactory(role="editor")


def issue_personal_secret(membership, **fields):
    _, secret = services.issue_personal_key(
        organization_id=membership.workspace.organization_id,
        person=membership.user,
        name="mine",
        **{"workspace_id": membership.workspace_id, **fields},
    )
    return secret


def send_request(secret, path="/sessions", method="get", body=None, **headers):
    extra = {} if body is None else {"data": body, "content_type": "application/json"}
    return getattr(Client(), method)(path, headers={"X-Api-Key": secret, **headers}, **extra)


class TestWorkspaceAccess:
    def test_key_for_chosen_workspaces_has_access_to_those_only(self):
        first, second, third = WorkspaceFactory.create_batch(
            3, organization=WorkspaceFactory().organization
        )
        _, secret = services.issue_key(
            organization=first.organization,
            workspaces=[first, second],
            name="two",
            scopes=["read"],
        )

        for selected in (first, second):
            assert (
                services.caller_for_key(secret=secret, workspace_id=selected.pk).workspace_id
                == selected.pk
            )
        with pytest.raises(errors.Forbidden):
            services.caller_for_key(secret=secret, workspace_id=third.pk)
        with pytest.raises(WorkspaceRequired):
            services.caller_for_key(secret=secret)

    def test_request_without_a_workspace_gets_the_error_that_clients_recognize(self):
        workspace = WorkspaceFactory()
        _, secret = services.issue_key(
            organization=workspace.organization, name="all", scopes=["admin"]
        )

        for path in ("/sessions", "/v2/deployments"):
            response = send_request(secret, path)
            assert response.status_code == 403
            assert response.json()["error"] == "org_scoped_key_requires_workspace"
            response = send_request(secret, path, **{"X-Tenant-Id": str(workspace.pk)})
            assert response.status_code == 200
        assert send_request(secret, "/auth").json() == {
            "org_config": {"org_id": str(workspace.organization_id)}
        }

    def test_key_whose_workspaces_are_deleted_is_rejected(self):
        workspace = WorkspaceFactory()
        secret = key_for(workspace)
        WorkspaceFactory(organization=workspace.organization)
        workspace.delete()

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=secret)

    def test_key_cannot_name_another_organization(self):
        workspace = WorkspaceFactory()
        _, secret = services.issue_key(
            organization=workspace.organization, name="all", scopes=["admin"]
        )
        other = {"X-Organization-Id": str(WorkspaceFactory().organization_id)}

        assert send_request(secret, "/orgs/current", **other).status_code == 403
        assert send_request(secret, "/orgs/current").json()["id"] == str(workspace.organization_id)


class TestPersonal:
    def test_personal_key_has_the_permissions_common_to_its_scopes_and_its_user(self, editor):
        full_key, reading_key = (
            issue_personal_secret(editor),
            issue_personal_secret(editor, scopes=["read"]),
        )

        permissions = services.caller_for_key(secret=full_key).permissions
        assert Permission.PROJECTS_WRITE in permissions
        assert Permission.MEMBERS_MANAGE not in permissions
        assert (
            Permission.PROJECTS_WRITE not in services.caller_for_key(secret=reading_key).permissions
        )

    def test_changed_role_applies_to_a_personal_key_at_the_next_lookup(self, editor):
        secret = issue_personal_secret(editor)
        WorkspaceMembership.objects.filter(pk=editor.pk).update(role="viewer")

        assert Permission.PROJECTS_WRITE not in services.caller_for_key(secret=secret).permissions

    def test_personal_key_has_access_to_its_users_workspaces(self, editor):
        secret = issue_personal_secret(editor)
        sibling = WorkspaceFactory(organization=editor.workspace.organization)
        foreign = WorkspaceMembershipFactory(user=editor.user).workspace

        for inaccessible in (sibling, foreign):
            with pytest.raises(errors.Forbidden):
                services.caller_for_key(secret=secret, workspace_id=inaccessible.pk)
        WorkspaceMembershipFactory(workspace=sibling, user=editor.user, role="viewer")
        assert services.caller_for_key(secret=secret, workspace_id=sibling.pk)

    def test_personal_key_is_rejected_after_its_user_left_the_organization(self, editor):
        secret = issue_personal_secret(editor)
        Membership.objects.filter(user=editor.user).delete()

        with pytest.raises(errors.Forbidden):
            services.caller_for_key(secret=secret)
        with pytest.raises(errors.Unauthenticated):
            services.organization_caller_for_key(secret=secret)

    def test_personal_key_is_rejected_while_its_user_is_inactive(self, editor):
        secret = issue_personal_secret(editor)
        editor.user.is_active = False
        editor.user.save()

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=secret)

    def test_read_only_key_cannot_write(self, editor):
        secret = issue_personal_secret(editor, scopes=["read"])

        assert send_request(secret).status_code == 200
        for path, body in (
            ("/sessions", {"name": "x"}),
            ("/runs", {"name": "x"}),
            ("/api-key/current", {"description": "x"}),
            ("/workspaces/current/secrets", [{"key": "A", "value": "x"}]),
            ("/workspaces/current/tag-keys", {"key": "x"}),
            ("/orgs", {"display_name": "x"}),
        ):
            assert send_request(secret, path, "post", body).status_code == 403, path


class TestRotation:
    def test_old_secret_is_valid_until_the_overlap_ends(self):
        old = key_for(WorkspaceFactory())
        now = timezone.now()
        with time_machine.travel(now, tick=False):
            _, new = services.rotate_key(key=api_key_row(old), overlap=timedelta(hours=1))
            assert services.caller_for_key(secret=old) == services.caller_for_key(secret=new)
        services.clear_cache()
        with time_machine.travel(now + timedelta(hours=1, seconds=1), tick=False):
            assert services.caller_for_key(secret=new)
            with pytest.raises(errors.Unauthenticated):
                services.caller_for_key(secret=old)

    def test_rotation_without_an_overlap_ends_the_old_secret(self):
        old = key_for(WorkspaceFactory())

        services.rotate_key(key=api_key_row(old))

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=old)

    def test_last_use_of_the_old_secret_is_stored(self):
        old = key_for(WorkspaceFactory())
        key, new = services.rotate_key(key=api_key_row(old), overlap=timedelta(hours=1))
        assert (key.last_used_at, key.previous_used_at) == (None, None)

        services.caller_for_key(secret=old)
        key.refresh_from_db()
        assert (key.last_used_at, key.previous_used_at is None) == (None, False)
        services.caller_for_key(secret=new)
        key.refresh_from_db()
        assert key.last_used_at is not None

    def test_revocation_ends_both_secrets(self):
        old = key_for(WorkspaceFactory())
        key, new = services.rotate_key(key=api_key_row(old), overlap=timedelta(hours=1))

        services.revoke_key(key=key)

        for secret in (old, new):
            with pytest.raises(errors.Unauthenticated):
                services.caller_for_key(secret=secret)
        with pytest.raises(errors.Conflict):
            services.rotate_key(key=key)


class TestApi:
    def test_a_key_is_shown_once_and_revoked(self):
        workspace = WorkspaceFactory()
        admin = key_for(workspace)

        created = send_request(
            admin, "/api-key", "post", {"description": "CI", "read_only": True}
        ).json()

        assert created["short_key"] == f"{created['key'][:11]}…"
        assert (created["read_only"], created["workspaces"]) == (True, [str(workspace.pk)])
        assert send_request(created["key"]).status_code == 200
        listed = send_request(admin, "/api-key").json()
        assert [("key" in key, key["description"]) for key in listed] == [
            (False, "CI"),
            (False, "test"),
        ]
        assert send_request(admin, f"/api-key/{created['id']}", "delete").status_code == 200
        services.clear_cache()
        assert send_request(created["key"]).status_code == 401
        assert send_request(admin, f"/api-key/{created['id']}", "delete").status_code == 404

    def test_key_cannot_exceed_the_permissions_or_workspaces_of_its_creator(self, editor):
        personal_key = issue_personal_secret(editor)
        workspace = editor.workspace
        sibling = WorkspaceFactory(organization=workspace.organization)
        admin = key_for(workspace)

        assert (
            send_request(personal_key, "/api-key", "post", {"description": "x"}).status_code == 403
        )
        reaching = {"description": "x", "workspaces": [str(workspace.pk), str(sibling.pk)]}
        assert send_request(admin, "/api-key", "post", reaching).status_code == 403
        assert send_request(admin, "/orgs/current/service-keys", "post", {}).status_code == 403
        foreign = {"description": "x", "workspaces": [str(WorkspaceFactory().pk)]}
        assert send_request(admin, "/api-key", "post", foreign).status_code == 404
        assert ApiKey.objects.count() == 2

    def test_workspace_admin_cannot_revoke_an_organization_key(self):
        workspace = WorkspaceFactory()
        organization_key, _ = services.issue_key(
            organization=workspace.organization, name="wide", scopes=["admin"]
        )
        admin = key_for(workspace)

        assert str(organization_key.pk) in [
            key["id"] for key in send_request(admin, "/api-key").json()
        ]
        for method in ("patch", "delete"):
            response = send_request(
                admin, f"/api-key/{organization_key.pk}", method, {"description": "x"}
            )
            assert response.status_code == 403
        organization_key.refresh_from_db()
        assert (organization_key.name, organization_key.is_live) == ("wide", True)

    def test_organization_keys_are_created_rotated_and_revoked(self):
        workspace = WorkspaceFactory()
        _, admin = services.issue_key(
            organization=workspace.organization, name="wide", scopes=["admin"]
        )
        path = "/orgs/current/service-keys"

        created = send_request(admin, path, "post", {"description": "CI"}).json()
        assert created["workspaces"] is None
        rotated = send_request(
            admin, f"{path}/{created['id']}/rotate", "post", {"overlap_seconds": 60}
        ).json()
        assert rotated["key"] != created["key"]
        assert rotated["previous_key"]["short_key"] == created["short_key"]
        headers = {"X-Tenant-Id": str(workspace.pk)}
        assert [send_request(key["key"], **headers).status_code for key in (created, rotated)] == [
            200,
            200,
        ]
        assert send_request(admin, f"{path}/{created['id']}", "delete").status_code == 200

    def test_user_manages_their_personal_keys_and_admins_see_all(self, editor):
        personal_key = issue_personal_secret(editor)
        owner = MembershipFactory(organization=editor.workspace.organization, role="owner").user
        owner_key = services.issue_personal_key(
            organization_id=editor.workspace.organization_id,
            person=owner,
            name="owner's",
            workspace_id=editor.workspace_id,
        )[1]

        created = send_request(
            personal_key, "/api-key/current", "post", {"description": "second"}
        ).json()
        assert created["user_id"] == str(editor.user_id)
        assert created["default_workspace_id"] == str(editor.workspace_id)
        assert len(send_request(personal_key, "/api-key/current").json()) == 2
        assert send_request(personal_key, "/orgs/current/personal-access-tokens").status_code == 403
        organization_path = "/orgs/current/personal-access-tokens"
        assert len(send_request(owner_key, organization_path).json()) == 3
        assert (
            send_request(owner_key, f"{organization_path}/{created['id']}", "delete").status_code
            == 200
        )
        assert (
            send_request(personal_key, f"/api-key/current/{created['id']}", "delete").status_code
            == 404
        )

    def test_key_lifetime_is_limited_by_the_organization(self, editor):
        organization = editor.workspace.organization
        Organization.objects.filter(pk=organization.pk).update(max_key_days=30)

        with pytest.raises(KeyLifetimeTooLong):
            issue_personal_secret(editor, expires_at=timezone.now() + timedelta(days=31))
        key = get_personal_key(issue_personal_secret(editor))

        assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)

    def test_expired_key_and_past_expiry_are_rejected(self):
        admin = key_for(WorkspaceFactory())
        past = {"expires_at": "2020-01-01T00:00:00Z"}

        assert send_request(admin, "/api-key", "post", past).status_code == 422
        soon = {"expires_at": (timezone.now() + timedelta(minutes=1)).isoformat()}
        created = send_request(admin, "/api-key", "post", soon).json()
        with time_machine.travel(timezone.now() + timedelta(minutes=2)):
            assert send_request(created["key"]).status_code == 401


def get_personal_key(secret):
    return ApiKey.objects.get(digest=services.digest(secret))
