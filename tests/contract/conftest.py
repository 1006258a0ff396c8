"""The agent under test, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.contract.deployment import deploy_shared
from tests.contract.leaked_sockets import collect_open_sockets, pytest_collection_modifyitems
from tests.contract.sse import RawClient
from tests.live import Live
from tests.response_deadline import with_deadline

__all__ = ["collect_open_sockets", "pytest_collection_modifyitems"]


@pytest.fixture(scope="session")
def agent_url(live: Live) -> str:
    """The graphs of tests/contract/project, deployed."""
    return deploy_shared(live, "contract")


@pytest.fixture(scope="session")
def client(live: Live, agent_url: str) -> Iterator[SyncLangGraphClient]:
    with with_deadline(get_sync_client(url=agent_url, api_key=live.api_key, timeout=60)) as client:
        yield client


@pytest.fixture
def raw(client: SyncLangGraphClient) -> httpx.Client:
    """The HTTP client of `client`, for requests that its methods cannot send."""
    return client.http.client


@pytest.fixture(scope="module")
def raw_client(live: Live, agent_url: str) -> Iterator[RawClient]:
    """A client that shows server-sent events as they are sent."""
    raw_client = RawClient(agent_url, live.api_key)
    yield raw_client
    raw_client.close()


@pytest.fixture
def mark() -> dict[str, str]:
    """Metadata that only the rows of this test have."""
    return {"mark": str(uuid4())}


@pytest.fixture
def thread_id(client: SyncLangGraphClient) -> str:
    """The id of a new thread."""
    return client.threads.create()["thread_id"]


@pytest.fixture(scope="module")
def store_url(live: Live) -> str:
    """The URL of the deployed project with a store index and webhook rules."""
    return deploy_shared(live, "store")


@pytest.fixture(scope="module")
def store_client(live: Live, store_url: str) -> Iterator[SyncLangGraphClient]:
    with get_sync_client(url=store_url, api_key=live.api_key, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def store_raw(live: Live, store_url: str) -> Iterator[httpx.Client]:
    """An HTTP client of the same deployment."""
    with httpx.Client(base_url=store_url, headers=live.headers, timeout=60) as client:
        yield client
