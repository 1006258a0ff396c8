"""Signs of life of the Celery processes, which the web process cannot see otherwise.

Each worker and beat renews a short-lived key in Redis under its role; `/readyz` reads them
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
    """The key under which a process of that role shows that it lives."""
    return f"slipway:alive:{role}"


def clear(url: str) -> None:
    """Before a start: signs that an earlier one left are no evidence of this one."""
    with redis.Redis.from_url(url, socket_timeout=PERIOD_SECONDS) as client:
        client.delete(*map(key, ROLES))


@signals.worker_ready.connect
def worker_is_ready(sender: Any, **_: object) -> None:
    """The part of the node name before the `@` is the role: `worker@host`, `builder@host`."""
    _start(str(sender.hostname).partition("@")[0])


@signals.beat_init.connect
def beat_is_ready(**_: object) -> None:
    _start("beat")


def _start(role: str) -> None:
    threading.Thread(target=_renew, args=[role], name="heartbeat", daemon=True).start()


def _renew(role: str) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=PERIOD_SECONDS)
    pause = threading.Event()
    while True:
        try:
            client.set(key(role), socket.gethostname(), ex=LIFETIME_SECONDS)
        except redis.RedisError:
            logger.warning("no sign of life could be left in Redis")
        pause.wait(PERIOD_SECONDS)
