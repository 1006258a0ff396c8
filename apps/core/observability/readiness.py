"""Readiness of the database, Redis and the Celery processes.

Each Celery worker, beat, and a playground process of its own renew a heartbeat, a short-lived Redis
key of the role; `/readyz` reads the heartbeats.
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
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.core.json import dumps

ROLES = ("worker", "builder", "beat")
PLAYGROUND = "playground"
HEARTBEAT_SECONDS = 5
HEARTBEAT_LIFETIME_SECONDS = 15

logger = logging.getLogger(__name__)


def check_components() -> dict[str, str]:
    """Return each component with `ok` or its failure."""
    return {"database": _check_database(), **_check_redis()}


def _check_database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "does not answer"
    return "ok"


def list_roles() -> tuple[str, ...]:
    """Return the roles of processes that renew a heartbeat in this installation."""
    return (*ROLES, PLAYGROUND) if settings.PLAYGROUND_PROCESSES else ROLES


def _check_redis() -> dict[str, str]:
    """Check Redis and the heartbeats in it."""
    roles = list_roles()
    try:
        heartbeats = _client().mget([heartbeat_key(role) for role in roles])
    except redis.RedisError:
        return {"redis": "does not answer", **dict.fromkeys(roles, "unknown")}
    return {
        "redis": "ok",
        **{
            role: "ok" if beat else "no heartbeat"
            for role, beat in zip(roles, heartbeats, strict=True)
        },
    }


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


def heartbeat_key(role: str) -> str:
    """Return the Redis key of a role's readiness."""
    return f"slipway:alive:{role}"


def clear_heartbeats(url: str) -> None:
    """Delete the heartbeats of an earlier start."""
    with redis.Redis.from_url(url, socket_timeout=HEARTBEAT_SECONDS) as client:
        client.delete(*map(heartbeat_key, (*ROLES, PLAYGROUND)))


@signals.worker_ready.connect
def start_worker_heartbeat(sender: Any, **_: object) -> None:
    """Start the heartbeat; the node name `role@host` contains the role."""
    start_heartbeat(str(sender.hostname).partition("@")[0])


@signals.beat_init.connect
def start_beat_heartbeat(**_: object) -> None:
    start_heartbeat("beat")


def start_heartbeat(role: str) -> None:
    """Renew the heartbeat of the role until this process ends."""
    threading.Thread(target=_renew_heartbeat, args=[role], name="heartbeat", daemon=True).start()


def _renew_heartbeat(role: str) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=HEARTBEAT_SECONDS)
    pause = threading.Event()
    while True:
        try:
            client.set(heartbeat_key(role), socket.gethostname(), ex=HEARTBEAT_LIFETIME_SECONDS)
        except redis.RedisError:
            logger.warning("heartbeat could not be written to Redis")
        pause.wait(HEARTBEAT_SECONDS)


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while this process runs."""
    return HttpResponse(b'{"ok":true}', content_type="application/json")


def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when every component is ready, else 503 with the failures."""
    parts = check_components()
    is_ready = all(state == "ok" for state in parts.values())
    response = HttpResponse(
        dumps({"ready": is_ready, "parts": parts}),
        content_type="application/json",
        status=200 if is_ready else 503,
    )
    # Prevents Django from logging the 503 as an error.
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001
    return response


urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
