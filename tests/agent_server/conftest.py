from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
from django.db import connections

from apps.agent_server.messaging.redis_dispatcher import loop_dispatcher
from apps.agent_server.services import assistants
from apps.agent_server.streaming import hub as hubs
from apps.api_keys import services as api_keys
from apps.core import sync_bridge
from apps.core.connections import loop_database
from apps.deployments import routes
from apps.deployments.models import Deployment
from tests.agent_server.asgi import Caller
from tests.agent_server.fake_worker import Worker
from tests.factories.agent_server import AgentFactory
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory


@pytest.fixture(autouse=True)
def nothing_cached() -> Iterator[None]:
    yield
    routes.clear_cache()
    assistants._ensured_revisions.clear()
    api_keys.clear_cache()


@pytest.fixture
def agent(db) -> Deployment:
    return AgentFactory()


@pytest.fixture
def key(agent) -> str:
    return key_for(agent.workspace, "write")


@pytest.fixture
def reader_key(agent) -> str:
    """May look, may not run."""
    return key_for(agent.workspace, "read")


@pytest.fixture
def outsider_key(db) -> str:
    return key_for(WorkspaceFactory())


@pytest.fixture
def redis_client(settings) -> Iterator[redis.Redis]:
    """The Redis of this test, empty."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.flushdb()
    yield client
    client.close()


def hang_up(client: redis.Redis) -> None:
    """Cut all connections to this test's database but the client's own; others belong to others."""
    own = client.client_id()
    database = str(client.get_connection_kwargs().get("db", 0))
    for entry in client.client_list():
        if entry["db"] == database and int(entry["id"]) != own:
            client.client_kill_filter(_id=entry["id"])


@pytest.fixture
async def front(transactional_db, redis_client) -> AsyncIterator[None]:
    """The platform's front in this test's loop; its threads give their connections back."""
    await hubs.hub()._link.connect()  # so that "from now on" means this moment
    yield
    await hubs.hub().aclose()
    await loop_dispatcher().aclose()
    await loop_database().aclose()
    pool = sync_bridge.thread_pool()
    threads = list(pool._threads)
    barrier = threading.Barrier(len(threads))

    def give_back() -> None:
        barrier.wait(timeout=10)
        connections.close_all()

    for done in [pool.submit(give_back) for _ in threads]:
        done.result(timeout=10)


@pytest.fixture
async def worker(front, settings) -> AsyncIterator[Worker]:
    worker = Worker(settings.REDIS_URL)
    await worker.listen()
    yield worker
    await worker.aclose()


@pytest.fixture
def call(front, agent, key) -> Caller:
    return Caller(agent.slug, key)
