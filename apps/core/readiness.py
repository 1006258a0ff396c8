"""Readiness of the database, Redis and the Celery processes."""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from apps.core import heartbeat


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
        heartbeats = _client().mget([heartbeat.key(role) for role in heartbeat.ROLES])
    except redis.RedisError:
        return {"redis": "does not answer", **dict.fromkeys(heartbeat.ROLES, "unknown")}
    return {
        "redis": "ok",
        **{
            role: "ok" if beat else "no heartbeat"
            for role, beat in zip(heartbeat.ROLES, heartbeats, strict=True)
        },
    }


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
