"""The documented patterns as one deployed agent, and a public client of it."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.agent_patterns.talk import Talk
from tests.contract.deploying import deploy
from tests.live import Live
from tests.response_deadline import with_deadline

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
def talk(client: SyncLangGraphClient) -> Callable[[str], Talk]:
    """Begins a conversation with one of the graphs, on a new thread."""
    return lambda graph: Talk(client, graph, client.threads.create()["thread_id"])


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
