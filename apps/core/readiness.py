"""Whether everything that should run does."""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from config import heartbeat


def check() -> dict[str, str]:
    """Each part with `ok` or what is wrong with it."""
    return {"database": _database(), **_redis()}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "does not answer"
    return "ok"


def _redis() -> dict[str, str]:
    """Redis itself and the signs of life that the Celery processes leave in it."""
    try:
        signs = _client().mget([heartbeat.key(role) for role in heartbeat.ROLES])
    except redis.RedisError:
        return {"redis": "does not answer", **dict.fromkeys(heartbeat.ROLES, "unknown")}
    return {
        "redis": "ok",
        **{
            role: "ok" if sign else "no sign of life"
            for role, sign in zip(heartbeat.ROLES, signs, strict=True)
        },
    }


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
