"""Resources that MCP clients have subscribed to, and which of them changed.

A thread changes with its row, the resource of a graph with the revision that has its code: what the
graph would return is not watched. A client with a session subscribes to one address at a time; they
are kept in Redis with their versions at that time, so its stream may be opened later, or again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import hiredis

from apps.agent_server import prepared_sql
from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp import resources
from apps.agent_server.mcp.sessions import LIFETIME_SECONDS, Session
from apps.agent_server.messaging.redis_connection import Command, RedisLost
from apps.agent_server.scope import Scope
from apps.agent_server.streaming.hub import StreamHub
from apps.core import errors
from apps.core.mcp.messages import INVALID_PARAMS, RpcError

MAX_PER_CLIENT = 100
_STREAM_FIELD = ""
"""The field with the id of the session's newest stream: an address is not empty."""
_VERSIONS = """
SELECT thread_id, updated_at FROM agent_server_thread
WHERE workspace_id = %s AND deployment_id = %s AND NOT temporary
  AND thread_id = ANY(%s::uuid[]) AND metadata @> %s::jsonb
"""


def is_subscribable(admission: Admission, uri: str) -> bool:
    """Whether the caller may read a resource with this address."""
    if resources.find_named(admission.resolve_scope("assistants", "search"), uri) is not None:
        return True
    thread_id = resources.thread_id_of(uri)
    if thread_id is None or admission.route.serving.http.disable_threads:
        return False
    scope = admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    return bool(read_versions(scope, [uri])[uri])


def read_versions(scope: Scope, uris: Collection[str]) -> dict[str, str]:
    """The version of each resource; empty for a thread that is gone or hidden."""
    threads = {uri: thread_id for uri in uris if (thread_id := resources.thread_id_of(uri))}
    rows = prepared_sql.fetch_rows(_VERSIONS, [*scope.key, list(threads.values()), scope.visible])
    changed = {thread_id: updated_at.isoformat() for thread_id, updated_at in rows}
    revision = str(scope.route.active_revision_id)
    return {uri: changed.get(threads[uri], "") if uri in threads else revision for uri in uris}


class SessionState(NamedTuple):
    """The subscriptions of a session: the version at the time of each, by address."""

    stream: str | None
    """The stream that tells of changes."""
    versions: dict[str, str]


class SessionSubscriptions:
    """The subscriptions of a session in Redis. Methods raise `errors.Unavailable` without it."""

    def __init__(self, hub: StreamHub, session: Session) -> None:
        self._hub = hub
        self._key = f"slipway:mcp:subscriptions:{session.token}"

    async def add(self, uri: str, version: str) -> None:
        """Subscribe to the address. Raises `RpcError` at the limit."""
        if len((await self.read()).versions.keys() | {uri}) > MAX_PER_CLIENT:
            text = f"A client has at most {MAX_PER_CLIENT} subscriptions."
            raise RpcError(INVALID_PARAMS, text)
        await self._store(uri, version)

    async def remove(self, uri: str) -> None:
        await self._run(("HDEL", self._key, uri))

    async def set_stream(self, stream_id: str) -> None:
        """Make this stream the one that tells of changes."""
        await self._store(_STREAM_FIELD, stream_id)

    async def read(self) -> SessionState:
        [fields] = await self._run(("HGETALL", self._key))
        versions = {name.decode(): value.decode() for name, value in fields.items()}
        return SessionState(versions.pop(_STREAM_FIELD, None), versions)

    async def _store(self, field: str, value: str) -> None:
        expiry = ("EXPIRE", self._key, LIFETIME_SECONDS)
        await self._run(("HSET", self._key, field, value), expiry)

    async def _run(self, *commands: Command) -> list[Any]:
        try:
            return await self._hub.run(*commands)
        except (RedisLost, hiredis.ReplyError) as error:
            raise errors.Unavailable from error
