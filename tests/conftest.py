"""Fixtures for all tests; the servers that tests need are started by tests.services."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import live as live_platform
from tests import services
from tests.live import Live


@pytest.fixture(scope="session")
def live() -> Live:
    """The whole platform, shared by the test run: make things of your own names in it."""
    return live_platform.shared(
        Path(os.environ[services.FOLDER]), run=int(os.environ[services.RUN])
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "live" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.live)
