"""Response counts of an agent by status: counted in memory, added up in Redis.

A killed process loses its counts of the last seconds, which charts tolerate.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

import redis

from apps.agent_server.messaging.redis_connection import blocking_client
from apps.deployments import routes

log = logging.getLogger(__name__)
FLUSH_SECONDS = 5.0
RETENTION_SECONDS = 30 * 24 * 3600

_lock = threading.Lock()
_counts: Counter[tuple[str, int]] = Counter()
_is_started = threading.Event()


def count_response(slug: str, status: int) -> None:
    """Count a response of the agent."""
    with _lock:
        _counts[slug, status] += 1
    if not _is_started.is_set():
        _is_started.set()
        threading.Thread(target=_flush_periodically, name="traffic", daemon=True).start()


def responses_for(slug: str) -> dict[int, int]:
    """The agent's responses by status; those of other processes are some seconds late."""
    flush()
    try:
        counts = _client().hgetall(_key(slug))
    except redis.RedisError:
        return {}
    return {int(status): int(count) for status, count in sorted(counts.items())}


def flush() -> None:
    """Add the counts of this process to Redis. Counts of unknown agents are dropped."""
    with _lock:
        counted = dict(_counts)
        _counts.clear()
    counts_by_status = {
        key: count for key, count in counted.items() if routes.cached_route(key[0])[1] is not None
    }
    if not counts_by_status:
        return
    try:
        with _client().pipeline(transaction=False) as pipeline:
            for (slug, status), count in counts_by_status.items():
                pipeline.hincrby(_key(slug), str(status), count)
            for slug in {slug for slug, _ in counts_by_status}:
                pipeline.expire(_key(slug), RETENTION_SECONDS)
            pipeline.execute()
    except redis.RedisError as error:
        log.warning("The count of %d responses is lost: %s", sum(counts_by_status.values()), error)


def _flush_periodically() -> None:
    pause = threading.Event()
    while True:
        pause.wait(FLUSH_SECONDS)
        flush()


def _key(slug: str) -> str:
    return f"slipway:traffic:{slug}"


def _client() -> redis.Redis:
    return blocking_client("slipway-traffic")
