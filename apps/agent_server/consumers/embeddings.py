"""What texts mean, as the agent's own model measures it: asked of its graph host."""

from __future__ import annotations

import base64
from typing import Any

from apps.agent_server.consumers.graph_calls import ask
from apps.agent_server.messaging.calls import CallFailed
from apps.agent_server.store.statements import Vector
from apps.agent_server.store.vectors import unpacked
from apps.core import errors
from apps.core.json import loads
from apps.deployments.routes import Route

# For the rest the agent's code or its settings are at fault: asking again changes nothing.
_PLATFORM = frozenset({"HostFailed", "TimeoutError", "RedisError", "GraphHostDied"})


class NotEmbedded(errors.Invalid):
    code = "not_embedded"


async def vectors_of(route: Route, value: dict[str, Any], index: Any) -> list[Vector]:
    """The vectors of a value's texts; none where nothing is to be indexed."""
    if route.serving.store.index is None or index is False:
        return []
    found = await _ask(route, {"value": value, "index": index})
    return [unpacked(path, _bytes(embedding)) for path, embedding in found]


async def query_vector(route: Route, query: str | None) -> Vector | None:
    """The vector of a query; None where the agent has no index."""
    if not query or route.serving.store.index is None:
        return None
    return unpacked("", _bytes(await _ask(route, {"query": query})))


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


async def _ask(route: Route, params: dict[str, Any]) -> Any:
    try:
        return loads(await ask(route, "", "embed", params))
    except CallFailed as error:
        if error.name in _PLATFORM:
            raise
        raise NotEmbedded(f"store.index.embed failed with {error.name}: {error.detail}") from error
