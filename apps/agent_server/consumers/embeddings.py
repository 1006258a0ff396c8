"""What texts mean, as the agent's own model measures it: asked of its graph host."""

from __future__ import annotations

import base64
from typing import Any

from apps.agent_server.consumers.graph_calls import call_graph
from apps.agent_server.messaging.calls import CallFailed
from apps.agent_server.store.statements import Vector, unpack_vector
from apps.core import errors
from apps.core.json import loads
from apps.deployments.routes import Route

# For the rest the agent's code or its settings are at fault: asking again changes nothing.
_PLATFORM_ERRORS = frozenset({"HostFailed", "TimeoutError", "RedisError", "GraphHostDied"})


class EmbeddingFailed(errors.Invalid):
    code = "not_embedded"


async def embed_value(route: Route, value: dict[str, Any], index: Any) -> list[Vector]:
    """The vectors of a value's texts; none where nothing is to be indexed."""
    if route.serving.store.index is None or index is False:
        return []
    found = await _call_embed(route, {"value": value, "index": index})
    return [unpack_vector(path, _bytes(embedding)) for path, embedding in found]


async def embed_query(route: Route, query: str | None) -> Vector | None:
    """The vector of a query; None where the agent has no index."""
    if not query or route.serving.store.index is None:
        return None
    return unpack_vector("", _bytes(await _call_embed(route, {"query": query})))


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


async def _call_embed(route: Route, params: dict[str, Any]) -> Any:
    try:
        return loads(await call_graph(route, "", "embed", params))
    except CallFailed as error:
        if error.name in _PLATFORM_ERRORS:
            raise
        raise EmbeddingFailed(
            f"store.index.embed failed with {error.name}: {error.detail}"
        ) from error
