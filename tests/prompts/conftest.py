from __future__ import annotations

import pytest

from apps.organizations.models import Workspace
from apps.prompts.models import Repository
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import create_prompt
from tests.tracing.conftest import api, make_api, other_workspace, page

__all__ = ["api", "make_api", "other_workspace", "page"]


@pytest.fixture
def workspace(db: None) -> Workspace:
    return WorkspaceFactory(handle="acme")


@pytest.fixture
def prompt(workspace: Workspace) -> Repository:
    """An empty private prompt."""
    return create_prompt(workspace, "helper")
