"""Pytest hooks for tests that use the public clients, which leave sockets open.

Conftest files import these names.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = (TESTS / "contract", TESTS / "agent_patterns")


@pytest.fixture(scope="module", autouse=True)
def collect_open_sockets() -> Iterator[None]:
    """Collect sockets that the public clients leave open, so that no other test reports them."""
    yield
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in FOLDERS):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
