"""Heartbeats of the Celery processes.

Each worker and beat renews a short-lived Redis key of its role; `/readyz` reads the keys
(apps.core.readiness).
"""

import logging
import socket
import threading
from typing import Any

import redis
from celery import signals
from django.conf import settings

ROLES = ("worker", "builder", "beat")
PERIOD_SECONDS = 5
LIFETIME_SECONDS = 15

logger = logging.getLogger(__name__)


def key(role: str) -> str:
    """Return the Redis key of a role's heartbeat."""
    return f"slipway:alive:{role}"


def clear(url: str) -> None:
    """Delete the heartbeats of an earlier start."""
    with redis.Redis.from_url(url, socket_timeout=PERIOD_SECONDS) as client:
        client.delete(*map(key, ROLES))


@signals.worker_ready.connect
def worker_is_ready(sender: Any, **_: object) -> None:
    """Start the heartbeat; the node name `role@host` contains the role."""
    _start(str(sender.hostname).partition("@")[0])


@signals.beat_init.connect
def beat_is_ready(**_: object) -> None:
    _start("beat")


def _start(role: str) -> None:
    threading.Thread(target=_renew, args=[role], name="heartbeat", daemon=True).start()


def _renew(role: str) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=PERIOD_SECONDS)
    timer = threading.Event()
    while True:
        try:
            client.set(key(role), socket.gethostname(), ex=LIFETIME_SECONDS)
        except redis.RedisError:
            logger.warning("heartbeat could not be written to Redis")
        timer.wait(PERIOD_SECONDS)
