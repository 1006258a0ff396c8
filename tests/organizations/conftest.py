from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.api_keys import services as keys
from apps.organizations.models import Organization, User, Workspace
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)


@pytest.fixture(autouse=True)
def clear_cache() -> None:
    keys.clear_cache()


@pytest.fixture
def workspace() -> Workspace:
    return WorkspaceFactory(name="Home", organization__name="Acme")


@pytest.fixture
def organization(workspace: Workspace) -> Organization:
    return workspace.organization


@pytest.fixture
def owner(organization: Organization) -> User:
    return MembershipFactory(
        organization=organization, user__email="owner@example.com", role="owner"
    ).user


@pytest.fixture
def admin(organization: Organization) -> User:
    return MembershipFactory(
        organization=organization, user__email="admin@example.com", role="admin"
    ).user


@pytest.fixture
def member(workspace: Workspace) -> User:
    """A member of the organization and editor of the workspace."""
    return WorkspaceMembershipFactory(workspace=workspace, user__email="member@example.com").user


@pytest.fixture
def outsider() -> User:
    """An owner of another organization."""
    workspace = WorkspaceFactory(name="Away", organization__name="Elsewhere")
    return MembershipFactory(
        organization=workspace.organization,
        user=UserFactory(email="outsider@example.com"),
        role="owner",
    ).user


class JsonClient:
    """A signed-in JSON client."""

    def __init__(self, user: User, **headers: str) -> None:
        self.client = Client()
        self.client.force_login(user)
        self.headers = headers

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        extra = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(self.client, method)(path, headers=self.headers, **extra)


@pytest.fixture
def client_for(workspace: Workspace) -> Callable[[User], JsonClient]:
    """Return a client of the user in the workspace."""
    return lambda user: JsonClient(user, **{"X-Tenant-Id": str(workspace.pk)})
