"""The documented patterns as one deployed agent, and a public client of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.agent_patterns.conversation import Conversation
from tests.contract.deployment import deploy
from tests.contract.leaked_sockets import collect_open_sockets, pytest_collection_modifyitems
from tests.live import Live
from tests.response_deadline import with_deadline

__all__ = ["collect_open_sockets", "pytest_collection_modifyitems"]

HERE = Path(__file__).parent
SHARED = HERE.with_name("contract") / "project"


@pytest.fixture(scope="session")
def agent_url(live: Live, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("patterns") / "agent"
    shutil.copytree(HERE / "agent", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("parrot.py", "toolbox.py"):
        shutil.copy(SHARED / name, folder)
    return deploy(live, folder, "patterns")


@pytest.fixture(scope="session")
def client(live: Live, agent_url: str) -> Iterator[SyncLangGraphClient]:
    with with_deadline(get_sync_client(url=agent_url, api_key=live.api_key, timeout=60)) as client:
        yield client


@pytest.fixture
def start_conversation(client: SyncLangGraphClient) -> Callable[[str], Conversation]:
    """Return a function that starts a conversation with a graph on a new thread."""
    return lambda graph: Conversation(client, graph, client.threads.create()["thread_id"])
