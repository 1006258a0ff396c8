from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_server.messaging import messages
from apps.agent_server.streaming import streams
from apps.deployments.models import Revision
from tests.agent_runtime.factories import make_revision
from tests.agent_runtime.host_launch import launch_unconfined

AGENT = Path(__file__).parent / "agent"


@pytest.fixture
def revision(transactional_db) -> Revision:
    return make_revision()


@pytest.fixture
def file(tmp_path) -> Path:
    """The file to which the steps of a graph append their lines."""
    return tmp_path / "effects"


@pytest.fixture
def empty_queues(settings) -> None:
    """Delete the messages of earlier tests, for which an engine would start a host."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.delete(messages.RUNS, messages.CALLS)
    client.close()


@pytest.fixture
def engines(
    settings, transactional_db, tmp_path, empty_queues
) -> Iterator[Callable[..., EngineThread]]:
    """Return a function that starts an engine in this process under a worker name."""
    settings.DATA_DIR = tmp_path
    settings.WARM_GRAPH_HOSTS = 0
    started: list[EngineThread] = []

    def start(node: str = "worker@here", **overrides: Any) -> EngineThread:
        for name, value in overrides.items():
            setattr(settings, name, value)
        started.append(EngineThread(node, lambda _: launch_unconfined(AGENT)))
        return started[-1]

    yield start
    for engine in started:
        engine.stop(0)


@pytest.fixture
def engine(engines) -> EngineThread:
    return engines()


@pytest.fixture
def listen(settings) -> Iterator[Callable[[UUID], Iterator[tuple[str, Any]]]]:
    """Return a function that yields the events of a run until it ends."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=150)

    def events(run_id: UUID) -> Iterator[tuple[str, Any]]:
        name, last_id = streams.stream_key(run_id), "0"
        while True:
            response = client.xread({name: last_id}, block=120_000)
            assert response, f"run {run_id} sent no event for 120 seconds"
            entries = response[name.encode()][0] if isinstance(response, dict) else response[0][1]
            for entry_id, fields in entries:
                last_id = entry_id
                for event in streams.unpack_batch(fields[streams.BATCH_FIELD]).events:
                    yield event.name.decode(), json.loads(event.data)
                    if event.name == streams.END:
                        return

    yield events
    client.close()
