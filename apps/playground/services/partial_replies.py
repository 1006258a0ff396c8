"""The replies so far of calls of experiments, in Redis, for pages that watch the rows.

They are a view only: without Redis a row shows its reply when the call has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

import redis

from apps.agent_server.messaging.redis_connection import blocking_client

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
MAX_CHARACTERS = 2000
"""Of the end of a reply."""
_LIFETIME_SECONDS = 20


def _key(call_id: UUID) -> str:
    return f"slipway:playground:reply:{call_id}"


def publish(call_id: UUID, text: str) -> None:
    """Store the reply so far. Waits for Redis, so it runs in a thread."""
    try:
        client = blocking_client("playground")
        client.set(_key(call_id), text[-MAX_CHARACTERS:], ex=_LIFETIME_SECONDS)
    except redis.RedisError:
        log.debug("The reply so far of call %s was not stored.", call_id)


def read(call_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the replies so far that are known."""
    if not call_ids:
        return {}
    try:
        values = blocking_client("playground").mget([_key(call_id) for call_id in call_ids])
    except redis.RedisError:
        return {}
    return {
        call_id: value if isinstance(value, str) else value.decode(errors="replace")
        for call_id, value in zip(call_ids, values, strict=True)
        if value
    }
