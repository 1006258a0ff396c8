"""What a graph looks like, as the build recorded it or as its code says now."""

from __future__ import annotations

import re
from typing import Any

from apps.agent_server.consumers.graph_calls import call_graph
from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants
from apps.agent_server.services.assistants import GraphRecord
from apps.core.errors import Invalid
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

_LEVELS = re.compile(r"[0-9]{1,4}")


class GraphConsumer(Consumer):
    """Answers from the record, unless the assistant's own settings may make another graph."""

    methods = ("GET",)

    async def found(self, context: HttpRequestContext) -> tuple[Scope, GraphRecord]:
        return await in_thread(_graph, context)

    async def ask(
        self, scope: Scope, drawn: GraphRecord, method: str, params: dict[str, Any] | None = None
    ) -> bytes:
        given = {**(params or {}), **({"config": drawn.config} if drawn.config else {})}
        given["user"] = scope.user
        return await call_graph(scope.route, drawn.graph.graph_id, method, given)


class DrawGraph(GraphConsumer):
    """Nodes and edges of an assistant's graph, or of the graph of that name.

    `xray` opens the graphs inside: all of them, or that many levels.
    """

    async def handle(self, context: HttpRequestContext) -> None:
        xray = _xray(context.query.get("xray", ["false"])[-1])
        scope, drawn = await self.found(context)
        if xray is False and drawn.config is None:
            await context.respond(dumps(drawn.graph.drawing))
            return
        await context.respond(await self.ask(scope, drawn, "graph", {"xray": xray}))


class DescribeSchemas(GraphConsumer):
    """JSON Schemas of what an assistant takes, gives and keeps; null where none can be made."""

    async def handle(self, context: HttpRequestContext) -> None:
        scope, drawn = await self.found(context)
        schemas = drawn.graph.schemas
        if drawn.config is not None:
            schemas = loads(await self.ask(scope, drawn, "schemas"))
        await context.respond(dumps({"graph_id": drawn.graph.graph_id, **schemas}))


class DescribeSubgraphs(GraphConsumer):
    """The schemas of the graphs inside an assistant's graph, by namespace.

    `recurse` goes on into theirs. A namespace that is not there gives an empty object.
    """

    async def handle(self, context: HttpRequestContext) -> None:
        scope, drawn = await self.found(context)
        params = {
            "namespace": context.kwargs.get("namespace"),
            "recurse": context.query_flag("recurse"),
        }
        await context.respond(await self.ask(scope, drawn, "subgraphs", params))


def _graph(context: HttpRequestContext) -> tuple[Scope, GraphRecord]:
    assistant_id = context.kwargs["assistant_id"]
    admission = context.admit(Permission.AGENTS_READ)
    scope = admission.resolve_scope("assistants", "read", assistant_id=assistant_id)
    return scope, assistants.get_graph(scope, assistant_id)


def _xray(text: str) -> bool | int:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _LEVELS.fullmatch(text):
        raise Invalid("xray: must be true, false or a number of levels")
    return int(text) or False
