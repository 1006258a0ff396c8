from __future__ import annotations

from typing import Any

import factory
from django.test import Client
from factory.django import DjangoModelFactory

from apps.api_keys.services import issue_key
from apps.organizations.models import (
    Membership,
    Organization,
    Role,
    Tagging,
    TagKey,
    TagValue,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import Level
from apps.organizations.roles import system_role
from apps.organizations.services import invitations, workspaces


class RoleFactory(DjangoModelFactory[Role]):
    class Meta:
        model = Role

    organization = factory.SubFactory("tests.factories.organizations.OrganizationFactory")
    level = Level.WORKSPACE
    display_name = factory.Sequence(lambda n: f"Role {n}")
    permissions = factory.LazyFunction(lambda: ["workspace:read"])


class OrganizationFactory(DjangoModelFactory[Organization]):
    class Meta:
        model = Organization

    name = factory.Sequence(lambda n: f"Organization {n}")


class WorkspaceFactory(DjangoModelFactory[Workspace]):
    class Meta:
        model = Workspace

    organization = factory.SubFactory(OrganizationFactory)
    name = factory.Sequence(lambda n: f"Workspace {n}")


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User

    email = factory.Sequence(lambda n: f"person{n}@example.com")
    password = "!"  # no password matches it


class MembershipFactory(DjangoModelFactory[Membership]):
    class Meta:
        model = Membership

    organization = factory.SubFactory(OrganizationFactory)
    user = factory.SubFactory(UserFactory)
    role = "member"


class WorkspaceMembershipFactory(DjangoModelFactory[WorkspaceMembership]):
    """A workspace membership, with a membership in the organization."""

    class Meta:
        model = WorkspaceMembership

    workspace = factory.SubFactory(WorkspaceFactory)
    user = factory.SubFactory(UserFactory)
    role = "editor"

    @classmethod
    def _create(
        cls, model_class: type[WorkspaceMembership], *args: Any, **kwargs: Any
    ) -> WorkspaceMembership:
        Membership.objects.get_or_create(
            organization=kwargs["workspace"].organization,
            user=kwargs["user"],
            defaults={"role": "member"},
        )
        return super()._create(model_class, *args, **kwargs)


def signed_in_client(user: User) -> Client:
    """Return a test client with a session of the user."""
    client = Client()
    client.force_login(user)
    return client


def create_marked_rows(workspace: Workspace, mark: str) -> dict[str, object]:
    """Create one row of each kind, marked with `mark`; the keys are route parameters."""
    organization = workspace.organization
    membership = WorkspaceMembershipFactory(
        workspace=workspace, user__email=f"{mark}@example.com", user__name=mark
    )
    invitation = invitations.invite(
        organization_id=organization.pk,
        role=system_role(Level.ORGANIZATION, "member"),
        email=f"{mark}-invited@example.com",
    )
    key, _ = issue_key(organization=organization, workspace=workspace, name=mark, scopes=["read"])
    workspaces.set_secrets(workspace_id=workspace.pk, values={mark: mark})
    tag_key = TagKey.unscoped.create(workspace=workspace, key=mark)
    value = TagValue.unscoped.create(workspace=workspace, tag_key=tag_key, value=mark)
    tagging = Tagging.unscoped.create(
        workspace=workspace, tag_value=value, resource_type="project", resource_id=workspace.pk
    )
    return {
        "role_id": RoleFactory(organization=organization, display_name=mark).pk,
        "identity_id": membership.pk,
        "membership_id": Membership.objects.get(organization=organization, user=membership.user).pk,
        "invitation_id": invitation.pk,
        "key_id": key.pk,
        "tag_key_id": tag_key.pk,
        "tag_value_id": value.pk,
        "tagging_id": tagging.pk,
    }
