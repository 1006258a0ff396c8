"""The cache backend of django-ratelimit: counts atomically in one Redis round trip.

django-ratelimit calls `add(key, 1)` and, if the key exists, `incr(key)`. Here `add` increments in
either case and `incr` returns its result, so that concurrent processes count exactly. The same
script updates the statistics of the organization (`CountRequest`).
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import redis
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from redis.exceptions import NoScriptError, ResponseError

from apps.core.sync_bridge import require_thread

REDIS_TIMEOUT_SECONDS = 0.25
RECONNECT_AFTER_SECONDS = 1.0
"""Pause after a failure of Redis, so that requests do not queue up."""

# KEYS: the counter; the organization's sorted set of active identities, and its hash of rejections.
# ARGV: TTL of the counter, the limit, now, the latest end of the interval, the identity, the row.
_SCRIPT = b"""
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
  if KEYS[2] then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[3])
    redis.call('ZADD', KEYS[2], ARGV[4], ARGV[5])
    redis.call('EXPIRE', KEYS[2], 7200)
  end
end
if KEYS[3] and count > tonumber(ARGV[2]) then
  redis.call('HINCRBY', KEYS[3], ARGV[6], 1)
  redis.call('EXPIRE', KEYS[3], 691200)
end
return count
"""
_SHA = hashlib.sha1(_SCRIPT).hexdigest().encode()  # noqa: S324  (the script id in Redis)


class RedisUnavailable(redis.ConnectionError):
    """Redis failed within the last second."""


@dataclass(slots=True)
class CountRequest:
    """Arguments of the next count, and its result."""

    limit: int = 0
    active_key: str | None = None
    """Redis key of the organization's active identities; None records no statistics."""
    rejected_key: str | None = None
    """Redis key of the organization's rejections."""
    now: int = 0
    until: int = 0
    member: str = ""
    row: str = ""
    count: int = 0
    is_key_lookup: bool = False
    """Return the counter's key instead of counting."""
    key: str = ""


counting: ContextVar[CountRequest | None] = ContextVar("counting", default=None)


class CountingCache(BaseCache):
    """The subset of a cache that django-ratelimit uses. Raises `redis.RedisError`."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._connections = _connection_to(server)

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        """Increment and return whether this was the first count; a value of 0 adds nothing."""
        if not value:
            return False
        if (request := counting.get()) is None:
            raise ValueError("`counting` is not set: count through apps.rate_limits.counters.")
        keys = (
            [key]
            if request.active_key is None or request.rejected_key is None
            else [key, request.active_key, request.rejected_key]
        )
        arguments = request.limit, request.now, request.until, request.member, request.row
        parts = [len(keys), *keys, int(timeout or 0), *arguments]
        request.count = int(self._connections.run(_SHA, _SCRIPT, parts))
        return request.count == int(value)

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Return the result of the preceding `add`."""
        request = counting.get()
        if request is None or not request.count:
            raise ValueError(key)
        return request.count

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        request = counting.get()
        if request is not None and request.is_key_lookup:
            request.key = key
            return default
        value = self._connections.execute("GET", key)
        return default if value is None else int(value)


class _ThreadConnections:
    """Connections to one Redis, one per thread."""

    def __init__(self, server: str) -> None:
        self._pool = redis.ConnectionPool.from_url(
            server,
            # redis-py counts every connection ever made, also those that were replaced.
            max_connections=2**31,
            socket_timeout=REDIS_TIMEOUT_SECONDS,
            socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
        )
        self._local = threading.local()
        self._unavailable_until = 0.0

    def run(self, sha: bytes, script: bytes, parts: list[Any]) -> Any:
        try:
            return self.execute("EVALSHA", sha, *parts)
        except NoScriptError:
            return self.execute("EVAL", script, *parts)

    def execute(self, *command: Any) -> Any:
        """Run a command in one round trip; reconnects once if an idle connection was closed."""
        require_thread()
        if self._unavailable_until > time.monotonic():
            raise RedisUnavailable
        existing = getattr(self._local, "connection", None)
        try:
            if existing is not None:
                try:
                    return self._round_trip(existing, command)
                except redis.TimeoutError:
                    raise
                except redis.ConnectionError:
                    existing.disconnect()
            self._local.connection = connection = self._pool.make_connection()
            return self._round_trip(connection, command)
        except ResponseError:
            raise
        except redis.RedisError:
            # Disconnect: a late reply must not be read as the reply to the next command.
            self._local.connection.disconnect()
            self._local.connection = None
            self._unavailable_until = time.monotonic() + RECONNECT_AFTER_SECONDS
            raise

    @staticmethod
    def _round_trip(connection: Any, command: tuple[Any, ...]) -> Any:
        connection.send_command(*command, check_health=False)
        return connection.read_response()


_connections_by_server: dict[str, _ThreadConnections] = {}


def _connection_to(server: str) -> _ThreadConnections:
    """Return the process-wide connections: Django creates a cache object per context."""
    return _connections_by_server.setdefault(server, _ThreadConnections(server))
