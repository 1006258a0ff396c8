"""Roles, role changes, and the last owner."""

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from apps.api_keys.services import caller_for_key, issue_personal_key
from apps.audit.models import Entry
from apps.core import errors
from apps.organizations.errors import AlreadyMember, LastOwner, PermissionEscalation, RoleInUse
from apps.organizations.models import Membership, User, WorkspaceMembership
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.roles import SYSTEM_ROLES, system_role
from apps.organizations.services import caller_for, members, organization_caller_for, roles
from tests.factories.organizations import MembershipFactory, RoleFactory, WorkspaceMembershipFactory

OWNER, ADMIN, MEMBER, VIEWER = (
    system_role(Level.ORGANIZATION, name) for name in ("owner", "admin", "member", "viewer")
)

IDS = {
    "organization:owner": "bd788d8d",
    "organization:admin": "d7292de5",
    "organization:member": "c1479abe",
    "organization:viewer": "b2e2747a",
    "workspace:admin": "c91f4233",
    "workspace:editor": "51c21821",
    "workspace:viewer": "15a55ae4",
    "workspace:annotator": "4bb77f0d",
}


def make_caller(user, organization):
    return organization_caller_for(user=user, organization_id=organization.pk)


def get_membership(user):
    return Membership.objects.get(user=user)


@pytest.mark.django_db
class TestRoles:
    def test_system_roles_have_the_same_ids_everywhere(self):
        assert {f"{role.level}:{role.key}": str(role.id)[:8] for role in SYSTEM_ROLES} == IDS

    def test_custom_role_determines_the_members_permissions(self, workspace):
        role = RoleFactory(
            organization=workspace.organization, permissions=["runs:read", "workspace:read"]
        )
        row = WorkspaceMembershipFactory(workspace=workspace, role="", custom_role=role)

        caller = caller_for(user=row.user, workspace_id=workspace.pk)

        assert caller.permissions == {"runs:read", "workspace:read"}

    def test_a_custom_role_may_administer_every_workspace(self, workspace, organization):
        permissions = ["organization:read", str(OrganizationPermission.WORKSPACES_ADMINISTER)]
        role = RoleFactory(organization=organization, level="organization", permissions=permissions)
        user = MembershipFactory(organization=organization, role="", custom_role=role).user

        assert caller_for(user=user, workspace_id=workspace.pk).permissions == set(Permission)
        assert list(type(workspace).objects.open_to(user)) == [workspace]

    def test_role_cannot_exceed_the_permissions_of_its_editor(self, admin, organization):
        with pytest.raises(PermissionEscalation):
            roles.create_role(
                organization_id=organization.pk,
                level=Level.ORGANIZATION,
                display_name="Sneaky",
                permissions=["owners:manage"],
                by=make_caller(admin, organization),
            )

    def test_role_in_use_cannot_be_deleted(self, workspace, organization):
        role = RoleFactory(organization=organization)
        WorkspaceMembershipFactory(workspace=workspace, role="", custom_role=role)

        with pytest.raises(RoleInUse):
            roles.delete_role(role=role)

        assert not Entry.objects.filter(action="role.deleted").exists()


@pytest.mark.django_db
class TestMemberChanges:
    def test_admin_cannot_add_or_change_owners(self, owner, admin, member, organization):
        by = make_caller(admin, organization)

        for action in (
            lambda: members.change_role(membership=get_membership(member), role=OWNER, by=by),
            lambda: members.change_role(membership=get_membership(owner), role=MEMBER, by=by),
            lambda: members.remove_member(membership=get_membership(owner), by=by),
        ):
            with pytest.raises(PermissionEscalation):
                action()

        assert [get_membership(user).role for user in (owner, admin, member)] == [
            "owner",
            "admin",
            "member",
        ]

    def test_owner_can_leave_after_adding_another(self, owner, admin, organization):
        members.change_role(
            membership=get_membership(admin), role=OWNER, by=make_caller(owner, organization)
        )
        members.leave(organization_id=organization.pk, user=owner)

        assert list(Membership.objects.values_list("user__email", "role")) == [
            ("admin@example.com", "owner")
        ]

    def test_last_owner_cannot_leave_or_be_demoted(self, owner, admin, organization):
        by = make_caller(owner, organization)

        for action in (
            lambda: members.leave(organization_id=organization.pk, user=owner),
            lambda: members.change_role(membership=get_membership(owner), role=ADMIN, by=by),
            lambda: members.remove_member(membership=get_membership(owner), by=by),
        ):
            with pytest.raises(LastOwner):
                action()

        assert get_membership(owner).role == "owner"

    def test_removed_member_permanently_loses_workspaces_and_keys(
        self, owner, member, organization, workspace
    ):
        _, secret = issue_personal_key(
            organization_id=organization.pk,
            person=member,
            name="mine",
            workspace_id=workspace.pk,
        )

        members.remove_member(
            membership=get_membership(member), by=make_caller(owner, organization)
        )
        WorkspaceMembershipFactory(workspace=workspace, user=member)

        assert caller_for(user=member, workspace_id=workspace.pk) is not None
        with pytest.raises(errors.Unauthenticated):
            caller_for_key(secret=secret)

    def test_a_member_is_added_to_a_workspace_once(self, workspace, member):
        viewer = system_role(Level.WORKSPACE, "viewer")

        with pytest.raises(AlreadyMember):
            members.add_to_workspace(workspace=workspace, user=member, role=viewer)

        assert WorkspaceMembership.objects.filter(workspace=workspace, user=member).count() == 1

    def test_outsider_cannot_be_added_to_a_workspace(self, workspace, outsider):
        with pytest.raises(errors.NotFound):
            members.add_to_workspace(
                workspace=workspace, user=outsider, role=system_role(Level.WORKSPACE, "viewer")
            )

        assert caller_for(user=outsider, workspace_id=workspace.pk) is None

    def test_member_changes_are_recorded(self, owner, member, organization):
        members.change_role(
            membership=get_membership(member), role=VIEWER, by=make_caller(owner, organization)
        )

        entry = Entry.objects.get(action="member.role_changed")
        assert (entry.before, entry.after) == (
            {"role": "Organization User"},
            {"role": "Organization Viewer"},
        )
        assert (entry.organization_id, entry.target_name) == (organization.pk, member.email)


@pytest.mark.django_db(transaction=True)
class TestConcurrentChanges:
    def test_one_of_two_owners_who_leave_at_once_remains(self, owner, organization):
        second = MembershipFactory(organization=organization, role="owner").user

        outcomes = _run_concurrently(
            lambda: members.leave(organization_id=organization.pk, user=owner),
            lambda: members.leave(organization_id=organization.pk, user=second),
        )

        assert sorted(outcomes) == ["LastOwner", "done"]
        assert Membership.objects.filter(organization=organization, role="owner").count() == 1

    def test_one_of_two_owners_who_demote_each_other_remains(self, owner, organization):
        second = MembershipFactory(organization=organization, role="owner").user
        first_by, second_by = make_caller(owner, organization), make_caller(second, organization)

        _run_concurrently(
            lambda: members.change_role(membership=get_membership(second), role=ADMIN, by=first_by),
            lambda: members.change_role(membership=get_membership(owner), role=ADMIN, by=second_by),
        )

        assert Membership.objects.filter(organization=organization, role="owner").count() == 1

    def test_database_trigger_keeps_the_last_owner(self, owner, organization):
        with pytest.raises(IntegrityError, match="would have no owner"):
            Membership.objects.filter(user=owner).delete()
        with pytest.raises(IntegrityError, match="would have no owner"):
            Membership.objects.filter(user=owner).update(role="admin")
        with pytest.raises(IntegrityError, match="would have no owner"):
            User.objects.filter(pk=owner.pk).delete()

        assert Membership.objects.filter(user=owner, role="owner").exists()

    def test_organization_can_be_deleted_with_its_owners(self, owner, organization):
        organization.delete()

        assert not Membership.objects.exists()

    def test_two_transactions_that_remove_an_owner_each_do_not_both_commit(
        self, owner, organization
    ):
        second = MembershipFactory(organization=organization, role="owner").user
        barrier = threading.Barrier(2)

        def delete_membership(user):
            with transaction.atomic():
                Membership.objects.filter(user=user).delete()
                barrier.wait(60)

        outcomes = _run_concurrently(
            lambda: delete_membership(owner), lambda: delete_membership(second)
        )

        assert sorted(outcomes) == ["IntegrityError", "done"]
        assert Membership.objects.filter(organization=organization, role="owner").count() == 1


def _run_concurrently(*actions):
    """Run the actions concurrently, each with its own connection; return "done" or error names."""
    outcomes = []

    def run(action):
        try:
            action()
            outcomes.append("done")
        except Exception as error:  # noqa: BLE001  (the test checks the class of the error)
            outcomes.append(type(error).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


@pytest.mark.django_db
def test_workspace_membership_has_exactly_one_role(workspace):
    role = RoleFactory(organization=workspace.organization)

    for fields in ({"role": "", "custom_role": None}, {"role": "viewer", "custom_role": role}):
        with pytest.raises(IntegrityError), transaction.atomic():
            WorkspaceMembershipFactory(workspace=workspace, **fields)

    assert not WorkspaceMembership.objects.exists()
