"""Service and personal keys: their reach, their end, and a secret that is changed under way."""

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
from tests.factories.api_keys import key_for, row_of
from tests.factories.organizations import (
    MembershipFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_cached():
    services.clear_cache()


@pytest.fixture
def editor():
    return WorkspaceMembershipFactory(role="editor")


def personal(membership, **said):
    _, secret = services.issue_personal_key(
        organization_id=membership.workspace.organization_id,
        person=membership.user,
        name="mine",
        **{"workspace_id": membership.workspace_id, **said},
    )
    return secret


def asked(secret, path="/sessions", method="get", body=None, **headers):
    extra = {} if body is None else {"data": body, "content_type": "application/json"}
    return getattr(Client(), method)(path, headers={"X-Api-Key": secret, **headers}, **extra)


class TestReach:
    def test_a_key_for_chosen_workspaces_reaches_those(self):
        first, second, third = WorkspaceFactory.create_batch(
            3, organization=WorkspaceFactory().organization
        )
        _, secret = services.issue_key(
            organization=first.organization,
            workspaces=[first, second],
            name="two",
            scopes=["read"],
        )

        for place in (first, second):
            assert (
                services.caller_for_key(secret=secret, workspace_id=place.pk).workspace_id
                == place.pk
            )
        with pytest.raises(errors.Forbidden):
            services.caller_for_key(secret=secret, workspace_id=third.pk)
        with pytest.raises(WorkspaceRequired):
            services.caller_for_key(secret=secret)

    def test_clients_are_told_exactly_what_is_missing(self):
        workspace = WorkspaceFactory()
        _, secret = services.issue_key(
            organization=workspace.organization, name="all", scopes=["admin"]
        )

        for path in ("/sessions", "/v2/deployments"):
            response = asked(secret, path)
            assert response.status_code == 403
            assert response.json()["error"] == "org_scoped_key_requires_workspace"
            named = asked(secret, path, **{"X-Tenant-Id": str(workspace.pk)})
            assert named.status_code == 200
        assert asked(secret, "/auth").json() == {
            "org_config": {"org_id": str(workspace.organization_id)}
        }

    def test_a_key_whose_workspaces_are_all_gone_reaches_nothing(self):
        workspace = WorkspaceFactory()
        secret = key_for(workspace)
        WorkspaceFactory(organization=workspace.organization)
        workspace.delete()

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=secret)

    def test_another_organization_is_not_named(self):
        workspace = WorkspaceFactory()
        _, secret = services.issue_key(
            organization=workspace.organization, name="all", scopes=["admin"]
        )
        other = {"X-Organization-Id": str(WorkspaceFactory().organization_id)}

        assert asked(secret, "/orgs/current", **other).status_code == 403
        assert asked(secret, "/orgs/current").json()["id"] == str(workspace.organization_id)


class TestPersonal:
    def test_it_may_what_both_its_scopes_and_its_person_may(self, editor):
        whole, reading = personal(editor), personal(editor, scopes=["read"])

        may = services.caller_for_key(secret=whole).permissions
        assert Permission.PROJECTS_WRITE in may
        assert Permission.MEMBERS_MANAGE not in may
        assert Permission.PROJECTS_WRITE not in services.caller_for_key(secret=reading).permissions

    def test_a_changed_role_is_felt_at_the_next_look(self, editor):
        secret = personal(editor)
        WorkspaceMembership.objects.filter(pk=editor.pk).update(role="viewer")

        assert Permission.PROJECTS_WRITE not in services.caller_for_key(secret=secret).permissions

    def test_it_goes_where_its_person_may_go(self, editor):
        secret = personal(editor)
        sibling = WorkspaceFactory(organization=editor.workspace.organization)
        elsewhere = WorkspaceMembershipFactory(user=editor.user).workspace

        for place in (sibling, elsewhere):
            with pytest.raises(errors.Forbidden):
                services.caller_for_key(secret=secret, workspace_id=place.pk)
        WorkspaceMembershipFactory(workspace=sibling, user=editor.user, role="viewer")
        assert services.caller_for_key(secret=secret, workspace_id=sibling.pk)

    def test_it_is_dead_while_its_person_is_out(self, editor):
        secret = personal(editor)
        Membership.objects.filter(user=editor.user).delete()

        with pytest.raises(errors.Forbidden):
            services.caller_for_key(secret=secret)
        with pytest.raises(errors.Unauthenticated):
            services.organization_caller_for_key(secret=secret)

    def test_it_is_dead_while_its_person_is_not_active(self, editor):
        secret = personal(editor)
        editor.user.is_active = False
        editor.user.save()

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=secret)

    def test_a_read_only_key_changes_nothing(self, editor):
        secret = personal(editor, scopes=["read"])

        assert asked(secret).status_code == 200
        for path, body in (
            ("/sessions", {"name": "x"}),
            ("/runs", {"name": "x"}),
            ("/api-key/current", {"description": "x"}),
            ("/workspaces/current/secrets", [{"key": "A", "value": "x"}]),
            ("/workspaces/current/tag-keys", {"key": "x"}),
            ("/orgs", {"display_name": "x"}),
        ):
            assert asked(secret, path, "post", body).status_code == 403, path


class TestRotation:
    def test_both_work_for_the_overlap_and_then_the_new_one_alone(self):
        old = key_for(WorkspaceFactory())
        now = timezone.now()
        with time_machine.travel(now, tick=False):
            _, new = services.rotate_key(key=row_of(old), overlap=timedelta(hours=1))
            assert services.caller_for_key(secret=old) == services.caller_for_key(secret=new)
        services.clear_cache()
        with time_machine.travel(now + timedelta(hours=1, seconds=1), tick=False):
            assert services.caller_for_key(secret=new)
            with pytest.raises(errors.Unauthenticated):
                services.caller_for_key(secret=old)

    def test_without_an_overlap_the_old_one_is_dead(self):
        old = key_for(WorkspaceFactory())

        services.rotate_key(key=row_of(old))

        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=old)

    def test_it_is_seen_whether_the_old_one_is_still_used(self):
        old = key_for(WorkspaceFactory())
        key, new = services.rotate_key(key=row_of(old), overlap=timedelta(hours=1))
        assert (key.last_used_at, key.previous_used_at) == (None, None)

        services.caller_for_key(secret=old)
        key.refresh_from_db()
        assert (key.last_used_at, key.previous_used_at is None) == (None, False)
        services.caller_for_key(secret=new)
        key.refresh_from_db()
        assert key.last_used_at is not None

    def test_revoking_ends_both(self):
        old = key_for(WorkspaceFactory())
        key, new = services.rotate_key(key=row_of(old), overlap=timedelta(hours=1))

        services.revoke_key(key=key)

        for secret in (old, new):
            with pytest.raises(errors.Unauthenticated):
                services.caller_for_key(secret=secret)
        with pytest.raises(errors.Conflict):
            services.rotate_key(key=key)


class TestByApi:
    def test_a_key_is_shown_once_and_revoked(self):
        workspace = WorkspaceFactory()
        admin = key_for(workspace)

        made = asked(admin, "/api-key", "post", {"description": "CI", "read_only": True}).json()

        assert made["short_key"] == f"{made['key'][:11]}…"
        assert (made["read_only"], made["workspaces"]) == (True, [str(workspace.pk)])
        assert asked(made["key"]).status_code == 200
        listed = asked(admin, "/api-key").json()
        assert [("key" in one, one["description"]) for one in listed] == [
            (False, "CI"),
            (False, "test"),
        ]
        assert asked(admin, f"/api-key/{made['id']}", "delete").status_code == 200
        services.clear_cache()
        assert asked(made["key"]).status_code == 401
        assert asked(admin, f"/api-key/{made['id']}", "delete").status_code == 404

    def test_nobody_makes_a_key_that_may_more_or_reaches_further(self, editor):
        own = personal(editor)
        workspace = editor.workspace
        sibling = WorkspaceFactory(organization=workspace.organization)
        admin = key_for(workspace)

        assert asked(own, "/api-key", "post", {"description": "x"}).status_code == 403
        reaching = {"description": "x", "workspaces": [str(workspace.pk), str(sibling.pk)]}
        assert asked(admin, "/api-key", "post", reaching).status_code == 403
        assert asked(admin, "/orgs/current/service-keys", "post", {}).status_code == 403
        foreign = {"description": "x", "workspaces": [str(WorkspaceFactory().pk)]}
        assert asked(admin, "/api-key", "post", foreign).status_code == 404
        assert ApiKey.objects.count() == 2

    def test_a_workspaces_admin_ends_no_key_of_the_organization(self):
        workspace = WorkspaceFactory()
        wide, _ = services.issue_key(
            organization=workspace.organization, name="wide", scopes=["admin"]
        )
        admin = key_for(workspace)

        assert str(wide.pk) in [one["id"] for one in asked(admin, "/api-key").json()]
        for method in ("patch", "delete"):
            response = asked(admin, f"/api-key/{wide.pk}", method, {"description": "x"})
            assert response.status_code == 403
        wide.refresh_from_db()
        assert (wide.name, wide.is_live) == ("wide", True)

    def test_an_organizations_keys_are_made_rotated_and_revoked(self):
        workspace = WorkspaceFactory()
        _, admin = services.issue_key(
            organization=workspace.organization, name="wide", scopes=["admin"]
        )
        path = "/orgs/current/service-keys"

        made = asked(admin, path, "post", {"description": "CI"}).json()
        assert made["workspaces"] is None
        rotated = asked(
            admin, f"{path}/{made['id']}/rotate", "post", {"overlap_seconds": 60}
        ).json()
        assert rotated["key"] != made["key"]
        assert rotated["previous_key"]["short_key"] == made["short_key"]
        here = {"X-Tenant-Id": str(workspace.pk)}
        assert [asked(one["key"], **here).status_code for one in (made, rotated)] == [200, 200]
        assert asked(admin, f"{path}/{made['id']}", "delete").status_code == 200

    def test_a_person_looks_after_their_own_and_admins_see_all(self, editor):
        own = personal(editor)
        owner = MembershipFactory(organization=editor.workspace.organization, role="owner").user
        of_owner = services.issue_personal_key(
            organization_id=editor.workspace.organization_id,
            person=owner,
            name="owner's",
            workspace_id=editor.workspace_id,
        )[1]

        made = asked(own, "/api-key/current", "post", {"description": "second"}).json()
        assert made["user_id"] == str(editor.user_id)
        assert made["default_workspace_id"] == str(editor.workspace_id)
        assert len(asked(own, "/api-key/current").json()) == 2
        assert asked(own, "/orgs/current/personal-access-tokens").status_code == 403
        all_of_them = "/orgs/current/personal-access-tokens"
        assert len(asked(of_owner, all_of_them).json()) == 3
        assert asked(of_owner, f"{all_of_them}/{made['id']}", "delete").status_code == 200
        assert asked(own, f"/api-key/current/{made['id']}", "delete").status_code == 404

    def test_keys_live_no_longer_than_the_organization_lets_them(self, editor):
        organization = editor.workspace.organization
        Organization.objects.filter(pk=organization.pk).update(max_key_days=30)

        with pytest.raises(KeyLifetimeTooLong):
            personal(editor, expires_at=timezone.now() + timedelta(days=31))
        key = row_of_personal(personal(editor))

        assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)

    def test_an_expired_key_is_refused_and_a_past_end_too(self):
        admin = key_for(WorkspaceFactory())
        past = {"expires_at": "2020-01-01T00:00:00Z"}

        assert asked(admin, "/api-key", "post", past).status_code == 422
        soon = {"expires_at": (timezone.now() + timedelta(minutes=1)).isoformat()}
        made = asked(admin, "/api-key", "post", soon).json()
        with time_machine.travel(timezone.now() + timedelta(minutes=2)):
            assert asked(made["key"]).status_code == 401


def row_of_personal(secret):
    return ApiKey.objects.get(digest=services.digest(secret))
