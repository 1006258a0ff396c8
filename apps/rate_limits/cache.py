"""The cache that django-ratelimit counts in: its two steps, add and increase, are one script.

The core asks `add(key, 1)` and, when the key was there already, `incr(key)`. Here `add` counts in
either case, so that no two processes can both be first and a request costs one round trip; `incr`
then says what `add` has found. What else is to be noted about a count goes the same way, in the
same script (`CountRequest`).
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

ANSWER_SECONDS = 0.25
RECONNECT_AFTER_SECONDS = 1.0
"""For so long a Redis that did not answer is not asked again, so that requests do not queue up."""

# KEYS: the counter; who counts for the organization, and what the organization was refused.
# ARGV: seconds that the counter lives, the limit, now, the end of the interval at the latest, who
# this is, the row.
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
_SHA = hashlib.sha1(_SCRIPT).hexdigest().encode()  # noqa: S324  (Redis names scripts so)


class RedisUnavailable(redis.ConnectionError):
    """Redis did not answer a moment ago."""


@dataclass(slots=True)
class CountRequest:
    """What is to be noted with the next count, and what came of it."""

    limit: int = 0
    seen: str | None = None
    """The organization's key of who counts; without one nothing is noted."""
    hits: str | None = None
    """The organization's key of what it was refused."""
    now: int = 0
    until: int = 0
    member: str = ""
    row: str = ""
    count: int = 0
    is_looked_for: bool = False
    """Not to be counted: what is wanted is where the count is."""
    key: str = ""


counting: ContextVar[CountRequest | None] = ContextVar("counting", default=None)


class CountingCache(BaseCache):
    """As much of a cache as django-ratelimit needs. Raises `redis.RedisError`."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._link = _link_to(server)

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        """Count, and say whether this was the first; who only looks (0) adds nothing."""
        if not value:
            return False
        if (note := counting.get()) is None:
            raise ValueError("Who counts says what: see apps.rate_limits.counters.")
        keys = [key] if note.seen is None or note.hits is None else [key, note.seen, note.hits]
        arguments = note.limit, note.now, note.until, note.member, note.row
        parts = [len(keys), *keys, int(timeout or 0), *arguments]
        note.count = int(self._link.run(_SHA, _SCRIPT, parts))
        return note.count == int(value)

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """What `add` has counted just now."""
        note = counting.get()
        if note is None or not note.count:
            raise ValueError(key)
        return note.count

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        note = counting.get()
        if note is not None and note.is_looked_for:
            note.key = key
            return default
        found = self._link.ask("GET", key)
        return default if found is None else int(found)


class _Link:
    """To one Redis; a connection for each thread, whatever context it works in."""

    def __init__(self, server: str) -> None:
        self._pool = redis.ConnectionPool.from_url(
            server, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        )
        self._of_thread = threading.local()
        self._away_until = 0.0

    def run(self, sha: bytes, script: bytes, parts: list[Any]) -> Any:
        try:
            return self.ask("EVALSHA", sha, *parts)
        except NoScriptError:
            return self.ask("EVAL", script, *parts)

    def ask(self, *command: Any) -> Any:
        """One round trip; a connection that broke since its last use is made anew."""
        require_thread()
        if self._away_until > time.monotonic():
            raise RedisUnavailable
        kept = getattr(self._of_thread, "connection", None)
        try:
            if kept is not None:
                try:
                    return self._round_trip(kept, command)
                except redis.TimeoutError:
                    raise
                except redis.ConnectionError:
                    kept.disconnect()
            self._of_thread.connection = fresh = self._pool.make_connection()
            return self._round_trip(fresh, command)
        except ResponseError:
            raise
        except redis.RedisError:
            # What it may still say must not be taken for the next answer.
            self._of_thread.connection.disconnect()
            self._of_thread.connection = None
            self._away_until = time.monotonic() + RECONNECT_AFTER_SECONDS
            raise

    @staticmethod
    def _round_trip(connection: Any, command: tuple[Any, ...]) -> Any:
        connection.send_command(*command, check_health=False)
        return connection.read_response()


_links: dict[str, _Link] = {}


def _link_to(server: str) -> _Link:
    """The process's one link to that server: Django makes a cache for each context."""
    return _links.setdefault(server, _Link(server))
