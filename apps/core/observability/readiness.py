"""Readiness of the database, Redis and the Celery processes.

Each Celery worker and beat renews a heartbeat, a short-lived Redis key of its role; `/readyz` reads
the heartbeats.
"""

from __future__ import annotations

import logging
import socket
import threading
from functools import cache
from typing import Any

import redis
from celery import signals
from django.conf import settings
from django.db import DatabaseError, connection


def check() -> dict[str, str]:
    """Return each component with `ok` or its failure."""
    return {"database": _database(), **_redis()}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "does not answer"
    return "ok"


def _redis() -> dict[str, str]:
    """Check Redis and the heartbeats of the Celery processes in it."""
    try:
        heartbeats = _client().mget([heartbeat_key(role) for role in ROLES])
    except redis.RedisError:
        return {"redis": "does not answer", **dict.fromkeys(ROLES, "unknown")}
    return {
        "redis": "ok",
        **{
            role: "ok" if beat else "no heartbeat"
            for role, beat in zip(ROLES, heartbeats, strict=True)
        },
    }


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


ROLES = ("worker", "builder", "beat")
PERIOD_SECONDS = 5
LIFETIME_SECONDS = 15

logger = logging.getLogger(__name__)


def heartbeat_key(role: str) -> str:
    """Return the Redis key of a role's readiness."""
    return f"slipway:alive:{role}"


def clear_heartbeats(url: str) -> None:
    """Delete the heartbeats of an earlier start."""
    with redis.Redis.from_url(url, socket_timeout=PERIOD_SECONDS) as client:
        client.delete(*map(heartbeat_key, ROLES))


@signals.worker_ready.connect
def worker_is_ready(sender: Any, **_: object) -> None:
    """Start the heartbeat; the node name `role@host` contains the role."""
    _start_heartbeat(str(sender.hostname).partition("@")[0])


@signals.beat_init.connect
def beat_is_ready(**_: object) -> None:
    _start_heartbeat("beat")


def _start_heartbeat(role: str) -> None:
    threading.Thread(target=_renew_heartbeat, args=[role], name="heartbeat", daemon=True).start()


def _renew_heartbeat(role: str) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=PERIOD_SECONDS)
    timer = threading.Event()
    while True:
        try:
            client.set(heartbeat_key(role), socket.gethostname(), ex=LIFETIME_SECONDS)
        except redis.RedisError:
            logger.warning("heartbeat could not be written to Redis")
        timer.wait(PERIOD_SECONDS)
