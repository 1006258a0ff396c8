from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_runtime.hosts.launch import launch_unconfined
from apps.agent_server.streaming import streams
from apps.deployments.models import Revision
from tests.agent_runtime.factories import make_revision

AGENT = Path(__file__).parent / "agent"


@pytest.fixture
def revision(transactional_db) -> Revision:
    return make_revision()


@pytest.fixture
def engines(settings, transactional_db, tmp_path) -> Iterator[Callable[..., EngineThread]]:
    """Makes engines of this process, as workers of the given names."""
    settings.DATA_DIR = tmp_path
    made: list[EngineThread] = []

    def make(node: str = "worker@here", **changed: Any) -> EngineThread:
        for name, value in changed.items():
            setattr(settings, name, value)
        made.append(EngineThread(node, lambda _: launch_unconfined(AGENT)))
        return made[-1]

    yield make
    for engine in made:
        engine.stop(0)


@pytest.fixture
def engine(engines) -> EngineThread:
    return engines()


@pytest.fixture
def listen(settings) -> Iterator[Callable[[UUID], Iterator[tuple[str, Any]]]]:
    """Yields a run's events as they come, to the end of the run."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=60)

    def events(run_id: UUID) -> Iterator[tuple[str, Any]]:
        name, last = streams.stream_key(run_id), "0"
        while True:
            found = client.xread({name: last}, block=30_000)
            assert found, f"run {run_id} says nothing more"
            entries = found[name.encode()][0] if isinstance(found, dict) else found[0][1]
            for entry_id, fields in entries:
                last = entry_id
                for event in streams.unpack_events(fields[streams.BATCH_FIELD]):
                    yield event.name.decode(), json.loads(event.data)
                    if event.name == streams.END:
                        return

    yield events
    client.close()
