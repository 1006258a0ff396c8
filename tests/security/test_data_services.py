"""Values in Redis and messages of tasks are data, and the data services ask for a password."""

from __future__ import annotations

import os
import pickle
import uuid

import pytest
import yaml
from django.core.cache import cache
from django.core.checks import run_checks
from kombu.exceptions import ContentDisallowed
from kombu.serialization import loads

from config.celery import app
from config.env import BASE_DIR


class _Attack:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self):
        return os.mkdir, (self._path,)


@pytest.fixture
def key():
    name = f"attack-{uuid.uuid4()}"
    yield name
    cache.delete(name)


def test_a_pickle_in_the_cache_is_not_executed(key, tmp_path):
    folder = tmp_path / "owned"
    client = cache._cache.get_client(None, write=True)
    client.set(cache.make_key(key), pickle.dumps(_Attack(str(folder))))

    with pytest.raises(ValueError, match="line 1 column 1"):
        cache.get(key)

    assert not folder.exists()


def test_cache_holds_values_of_json_only(key):
    cache.set(key, {"times": [1.5, 2], "used": True})

    assert cache.get(key) == {"times": [1.5, 2], "used": True}
    with pytest.raises(TypeError):
        cache.set(key, object())


def test_counters_of_the_cache_count(key):
    cache.set(key, 1)

    assert cache.incr(key) == 2
    assert cache.get(key) == 2


def test_a_pickled_task_message_is_refused(tmp_path):
    folder = tmp_path / "owned"
    message = pickle.dumps(_Attack(str(folder)))

    with pytest.raises(ContentDisallowed):
        loads(message, "application/x-python-serialize", "binary", accept=app.conf.accept_content)

    assert app.conf.accept_content == ["json"]
    assert not folder.exists()


def test_compose_gives_both_data_services_a_password():
    services = yaml.safe_load((BASE_DIR / "docker/compose.yaml").read_text())["services"]

    assert "REDIS_PASSWORD:?" in services["redis"]["environment"]["REDISCLI_AUTH"]
    assert "requirepass" in services["redis"]["command"][-1]
    assert "POSTGRES_PASSWORD:?" in services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    for name in ("web", "worker", "builder", "beat", "migrate"):
        environment = services[name]["environment"]
        assert "redis://:${REDIS_PASSWORD:?}@" in environment["REDIS_URL"]
        assert ":${POSTGRES_PASSWORD:?}@" in environment["DATABASE_URL"]


@pytest.mark.parametrize(
    ("url", "ids"),
    [
        ("redis://redis:6379/0", {"core.E002"}),
        ("redis://:secret@redis:6379/0", set()),
        ("unix:///sockets/redis.sock?db=0", set()),
    ],
)
def test_deploy_check_requires_a_password_of_redis_over_tcp(settings, url, ids):
    settings.REDIS_URL = url

    messages = run_checks(include_deployment_checks=True, tags=["security"])

    assert {message.id for message in messages if message.id in ("core.E001", "core.E002")} == ids
