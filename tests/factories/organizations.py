from __future__ import annotations

import factory
from factory.django import DjangoModelFactory

from apps.organizations.models import (
    Membership,
    Organization,
    User,
    Workspace,
    WorkspaceMembership,
)


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
    class Meta:
        model = WorkspaceMembership

    workspace = factory.SubFactory(WorkspaceFactory)
    user = factory.SubFactory(UserFactory)
    role = "editor"
