from __future__ import annotations

from datetime import UTC, datetime

import pytest
import time_machine

from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceMembershipFactory


@pytest.fixture(autouse=True)
def frozen_time():
    """Stop the clock, so that ages on pages are the same in each response."""
    with time_machine.travel(datetime.now(UTC), tick=False):
        yield


@pytest.fixture
def owner(db: None) -> Workspace:
    """The workspace that owns the rows; no other workspace may see them."""
    return WorkspaceMembershipFactory(role="admin").workspace


@pytest.fixture
def requester(db: None) -> Workspace:
    return WorkspaceMembershipFactory(role="admin").workspace
