from __future__ import annotations

import pytest
from django.core.cache import cache
from django.test import Client

from apps.organizations.models import User, Workspace
from tests.factories.organizations import (
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

PASSWORD = "correct horse battery"


@pytest.fixture
def workspace() -> Workspace:
    return WorkspaceFactory(name="Desk", organization__name="Northwind")


def create_workspace_user(workspace: Workspace, role: str) -> User:
    user = UserFactory()
    user.set_password(PASSWORD)
    user.save()
    WorkspaceMembershipFactory(workspace=workspace, user=user, role=role)
    return user


@pytest.fixture
def editor(workspace) -> User:
    return create_workspace_user(workspace, "editor")


@pytest.fixture
def page(editor) -> Client:
    """A client in which the editor is signed in."""
    return signed_in(editor)


def signed_in(user: User) -> Client:
    client = Client(headers={"Accept": "text/html"})
    client.force_login(user)
    return client


@pytest.fixture(autouse=True)
def _reset_sign_in_attempts():
    cache.clear()
