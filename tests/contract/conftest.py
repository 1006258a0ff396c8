"""The agent under test, and clients of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.contract.deploying import deploy
from tests.live import Live
from tests.response_deadline import with_deadline


@pytest.fixture(scope="session")
def agent_url(live: Live) -> str:
    """The graphs of tests/contract/project, deployed."""
    return deploy(live, Path(__file__).parent / "project", "contract")


@pytest.fixture(scope="session")
def client(live: Live, agent_url: str) -> Iterator[SyncLangGraphClient]:
    with with_deadline(get_sync_client(url=agent_url, api_key=live.api_key, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def what_the_client_leaves_open_ends_here() -> Iterator[None]:
    """Sockets that the public clients forget to close; otherwise another test would be blamed."""
    yield
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
