"""Errors of graph calls, embeddings by the graph host, and a cache of graph calls on threads."""

from __future__ import annotations

import base64
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.messaging import calls
from apps.agent_server.messaging.calls import CallFailed
from apps.agent_server.messaging.messages import EDIT_REFUSED, THREAD_BUSY, THREAD_GONE
from apps.agent_server.store.statements import Vector, unpack_vector
from apps.core.errors import Invalid
from apps.core.json import loads
from apps.deployments.routes import Route

CACHE_BYTES = 32 * 1024 * 1024
MAX_ENTRY_BYTES = 1024 * 1024
GRAPH_ERROR_FIELD = b'"graph_error":'
"""In a state that was read without its graph, which may answer the next time."""
# Any other error is the fault of the agent's code or settings; a retry would not help.
_PLATFORM_ERRORS = frozenset({"HostFailed", "TimeoutError", "RedisError", "GraphHostDied"})


@contextlib.asynccontextmanager
async def edit_errors(thread_id: UUID) -> AsyncIterator[None]:
    """Raise a failed edit of a thread as a 4xx error if a retry would fail again."""
    try:
        yield
    except CallFailed as failure:
        if failure.name == EDIT_REFUSED:
            raise errors.EditRefused(failure.detail) from failure
        if failure.name == THREAD_BUSY:
            raise errors.ThreadBusy from failure
        if failure.name == THREAD_GONE:
            raise errors.ThreadNotFound(thread_id) from failure
        raise


# Embeddings, computed by the agent's own model in its graph host


class EmbeddingFailed(Invalid):
    code = "not_embedded"


async def embed_value(route: Route, value: dict[str, Any], index: Any) -> list[Vector]:
    """Return the vectors of an item's texts; none if nothing is indexed."""
    if route.serving.store.index is None or index is False:
        return []
    embeddings = await _call_embed(route, {"value": value, "index": index})
    return [unpack_vector(path, base64.b64decode(text)) for path, text in embeddings]


async def embed_query(route: Route, query: str | None) -> Vector | None:
    """Return the vector of a query; None if the agent has no index."""
    if not query or route.serving.store.index is None:
        return None
    embedding = await _call_embed(route, {"query": query})
    return unpack_vector("", base64.b64decode(embedding))


async def _call_embed(route: Route, params: dict[str, Any]) -> Any:
    try:
        return loads(await calls.call_graph(route, "", "embed", params))
    except CallFailed as error:
        if error.name in _PLATFORM_ERRORS:
            raise
        raise EmbeddingFailed(
            f"store.index.embed failed with {error.name}: {error.detail}"
        ) from error


# Cache of answers about unchanged threads


CallKey = tuple[Any, ...]


class StateCache:
    """The most recently used answers about threads, up to a number of bytes.

    Every change of what a graph answers about a thread (a run that starts, saves or ends, an edit,
    a pruning, a rollback) writes the thread's row. So the version of the row, read in the same
    request, tells whether an answer is still valid, whichever process changed the thread.
    """

    def __init__(
        self, max_bytes: int = CACHE_BYTES, max_entry_bytes: int = MAX_ENTRY_BYTES
    ) -> None:
        self._max_bytes, self._max_entry_bytes = max_bytes, max_entry_bytes
        self._answers: OrderedDict[tuple[UUID, str, CallKey], bytes] = OrderedDict()
        self._size = 0

    async def get(
        self,
        thread: UUID,
        version: str,
        call_key: CallKey,
        call: Callable[[], Awaitable[bytes]],
    ) -> bytes:
        """Return the answer for the thread at that version, calling the graph if it is unknown."""
        key = thread, version, call_key
        cached = self._answers.get(key)
        if cached is not None:
            self._answers.move_to_end(key)
            return cached
        answer = await call()
        is_cacheable = len(answer) <= self._max_entry_bytes and GRAPH_ERROR_FIELD not in answer
        if is_cacheable and key not in self._answers:
            self._answers[key] = answer
            self._size += len(answer)
            while self._size > self._max_bytes:
                _, evicted = self._answers.popitem(last=False)
                self._size -= len(evicted)
        return answer

    @property
    def size(self) -> int:
        return self._size


state_cache = StateCache()
