from __future__ import annotations

import pytest

from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceFactory


@pytest.fixture
def workspace(db) -> Workspace:
    return WorkspaceFactory()
