from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
from django.db import connections
from django.http import HttpResponse

from apps.agent_server.messaging.redis_dispatcher import loop_dispatcher
from apps.agent_server.models import Thread
from apps.agent_server.services import assistants
from apps.agent_server.streaming import hub as hubs
from apps.api_keys import services as api_keys
from apps.core import sync_bridge
from apps.core.connections import loop_database
from apps.deployments import routes
from apps.deployments.models import Deployment
from tests.agent_server.asgi import Caller
from tests.agent_server.fake_worker import Worker
from tests.factories.agent_server import AgentFactory, ThreadFactory
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory


@pytest.fixture(autouse=True)
def clear_caches() -> Iterator[None]:
    yield
    routes.clear_cache()
    assistants._ensured_revisions.clear()
    api_keys.clear_cache()


@pytest.fixture
def agent(db) -> Deployment:
    return AgentFactory()


@pytest.fixture
def thread(agent) -> Thread:
    return ThreadFactory(deployment=agent)


@pytest.fixture
def key(agent) -> str:
    return key_for(agent.workspace, "write")


@pytest.fixture
def send(client, agent, key) -> Callable[..., HttpResponse]:
    """Return a function that sends a JSON request to the agent, by default with its key."""

    def send(
        method: str, path: str, body: Any = None, *, key: str | None = key, **headers: str
    ) -> HttpResponse:
        return getattr(client, method)(
            f"/agents/{agent.slug}{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={**({"X-Api-Key": key} if key else {}), **headers},
        )

    return send


@pytest.fixture
def reader_key(agent) -> str:
    """A key that may read but not run the agent."""
    return key_for(agent.workspace, "read")


@pytest.fixture
def outsider_key(db) -> str:
    return key_for(WorkspaceFactory())


@pytest.fixture
def redis_client(settings) -> Iterator[redis.Redis]:
    """The Redis database of this test, empty."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.flushdb()
    yield client
    client.close()


def drop_connections(client: redis.Redis) -> None:
    """Close all connections to the database of this test, except the client's own."""
    own = client.client_id()
    database = str(client.get_connection_kwargs().get("db", 0))
    for entry in client.client_list():
        if entry["db"] == database and int(entry["id"]) != own:
            client.client_kill_filter(_id=entry["id"])


@pytest.fixture
async def asgi_app(transactional_db, redis_client) -> AsyncIterator[None]:
    """The ASGI application in the event loop of the test; its connections are closed afterwards."""
    await (
        hubs.get_hub()._link.connect()
    )  # subscriptions must not begin before the connection exists
    yield
    await hubs.get_hub().aclose()
    await loop_dispatcher().aclose()
    await loop_database().aclose()
    pool = sync_bridge.thread_pool()
    threads = list(pool._threads)
    barrier = threading.Barrier(len(threads))

    def close_connections() -> None:
        barrier.wait(timeout=60)
        connections.close_all()

    for future in [pool.submit(close_connections) for _ in threads]:
        future.result(timeout=60)


@pytest.fixture
async def worker(asgi_app, settings) -> AsyncIterator[Worker]:
    worker = Worker(settings.REDIS_URL)
    await worker.listen()
    yield worker
    await worker.aclose()


@pytest.fixture
def call(asgi_app, agent, key) -> Caller:
    return Caller(agent.slug, key)
