"""What a graph looks like, as the build recorded it or as its code says now."""

from __future__ import annotations

import re
from typing import Any

from apps.agent_server.consumers.graph_calls import ask
from apps.agent_server.consumers.http_request import Consumer, Exchange
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants
from apps.agent_server.services.assistants import Drawn
from apps.core.errors import Invalid
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

_LEVELS = re.compile(r"[0-9]{1,4}")


class GraphConsumer(Consumer):
    """Answers from the record, unless the assistant's own settings may make another graph."""

    methods = ("GET",)

    async def found(self, exchange: Exchange) -> tuple[Scope, Drawn]:
        return await in_thread(_graph, exchange)

    async def ask(
        self, scope: Scope, drawn: Drawn, method: str, params: dict[str, Any] | None = None
    ) -> bytes:
        given = {**(params or {}), **({"config": drawn.config} if drawn.config else {})}
        given["user"] = scope.user
        return await ask(scope.route, drawn.graph.graph_id, method, given)


class DrawGraph(GraphConsumer):
    """Nodes and edges of an assistant's graph, or of the graph of that name.

    `xray` opens the graphs inside: all of them, or that many levels.
    """

    async def handle(self, exchange: Exchange) -> None:
        xray = _xray(exchange.query.get("xray", ["false"])[-1])
        scope, drawn = await self.found(exchange)
        if xray is False and drawn.config is None:
            await exchange.respond(dumps(drawn.graph.drawing))
            return
        await exchange.respond(await self.ask(scope, drawn, "graph", {"xray": xray}))


class DescribeSchemas(GraphConsumer):
    """JSON Schemas of what an assistant takes, gives and keeps; null where none can be made."""

    async def handle(self, exchange: Exchange) -> None:
        scope, drawn = await self.found(exchange)
        schemas = drawn.graph.schemas
        if drawn.config is not None:
            schemas = loads(await self.ask(scope, drawn, "schemas"))
        await exchange.respond(dumps({"graph_id": drawn.graph.graph_id, **schemas}))


class DescribeSubgraphs(GraphConsumer):
    """The schemas of the graphs inside an assistant's graph, by namespace.

    `recurse` goes on into theirs. A namespace that is not there gives an empty object.
    """

    async def handle(self, exchange: Exchange) -> None:
        scope, drawn = await self.found(exchange)
        params = {
            "namespace": exchange.kwargs.get("namespace"),
            "recurse": exchange.flag("recurse"),
        }
        await exchange.respond(await self.ask(scope, drawn, "subgraphs", params))


def _graph(exchange: Exchange) -> tuple[Scope, Drawn]:
    assistant_id = exchange.kwargs["assistant_id"]
    admission = exchange.admit(Permission.AGENTS_READ)
    scope = admission.scope("assistants", "read", assistant_id=assistant_id)
    return scope, assistants.graph_of(scope, assistant_id)


def _xray(text: str) -> bool | int:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _LEVELS.fullmatch(text):
        raise Invalid("xray: must be true, false or a number of levels")
    return int(text) or False
