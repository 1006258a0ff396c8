"""What a graph looks like, as recorded or as its code says now."""

from __future__ import annotations

from typing import Any

from apps.agent_server.consumers.asking import ask
from apps.agent_server.consumers.exchange import Consumer, Exchange
from apps.agent_server.services import assistants
from apps.core.crossing import in_thread
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission


class DrawGraph(Consumer):
    """`GET /assistants/{id or graph}/graph`: as recorded, or opened up by the graph itself."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        route, graph = await in_thread(_graph, exchange)
        xray = _xray(exchange.query.get("xray", ["false"])[-1])
        if xray is False:
            await exchange.respond(dumps(graph.drawing))
            return
        await exchange.respond(await ask(route, graph.graph_id, "graph", {"xray": xray}))


class DescribeSubgraphs(Consumer):
    """`GET /assistants/{id}/subgraphs[/{namespace}]`: their schemas by namespace."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        route, graph = await in_thread(_graph, exchange)
        params = {
            "namespace": exchange.kwargs.get("namespace"),
            "recurse": exchange.flag("recurse"),
        }
        await exchange.respond(await ask(route, graph.graph_id, "subgraphs", params))


def _graph(exchange: Exchange) -> tuple[Route, Any]:
    assistant_id = exchange.kwargs["assistant_id"]
    admission = exchange.admit(Permission.AGENTS_READ)
    scope = admission.scope("assistants", "read", assistant_id=assistant_id)
    return scope.route, assistants.graph_of(scope, assistant_id)


def _xray(text: str) -> bool | int:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not text.isdigit():
        raise Invalid("xray: must be true, false or a number of levels")
    return int(text) or False
