from __future__ import annotations

from datetime import UTC, datetime

import pytest
import time_machine

from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceMembershipFactory


@pytest.fixture(autouse=True)
def still_time():
    """Ages on pages say the same at every look."""
    with time_machine.travel(datetime.now(UTC), tick=False):
        yield


@pytest.fixture
def holder(db: None) -> Workspace:
    """The workspace whose things nobody else shall see."""
    return WorkspaceMembershipFactory(role="admin").workspace


@pytest.fixture
def asker(db: None) -> Workspace:
    return WorkspaceMembershipFactory(role="admin").workspace
