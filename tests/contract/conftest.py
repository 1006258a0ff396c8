"""The agent under test, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.contract.deploying import deploy
from tests.live import Live


@pytest.fixture(scope="session")
def agent_url(live: Live) -> str:
    """The graphs of tests/contract/project, deployed."""
    return deploy(live, Path(__file__).parent / "project", "contract")


@pytest.fixture(scope="session")
def client(live: Live, agent_url: str) -> Iterator[SyncLangGraphClient]:
    with get_sync_client(url=agent_url, api_key=live.api_key, timeout=60) as client:
        yield client
