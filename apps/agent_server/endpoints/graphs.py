"""Endpoints that describe an assistant's graph: drawing, schemas, subgraphs.

The build recorded these; the graph itself is called if the assistant's settings may change it, or
if the build could not describe it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from apps.agent_server.endpoints.endpoint import (
    Continuation,
    EndpointGroup,
    Result,
    json_response,
)
from apps.agent_server.messaging import calls
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.assistants import GraphQuery, SubgraphsQuery
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants
from apps.agent_server.services.assistants import GraphRecord
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core.json import loads

endpoints = EndpointGroup("assistants")


@endpoints.get("/assistants/{assistant_id}/graph", response=responses.Drawing)
def draw_graph(context: HttpRequestContext, assistant_id: str, query: GraphQuery) -> Result:
    """Get the nodes and edges of an assistant's graph, or of the graph with that name.

    `xray` draws nested graphs: all of them, or that many levels.
    """
    scope, record = _find_graph(context, assistant_id)
    if query.xray is False and record.config is None and record.graph.drawing:
        return json_response(record.graph.drawing)
    return partial(_send_answer, scope, record, "graph", {"xray": query.xray})


@endpoints.get("/assistants/{assistant_id}/schemas", response=responses.GraphSchemas)
def describe_schemas(context: HttpRequestContext, assistant_id: str) -> Result:
    """Get the JSON Schemas of a graph's input, output, state and context; null if unknown."""
    scope, record = _find_graph(context, assistant_id)
    graph_id = record.graph.graph_id
    if record.config is None and record.graph.schemas:
        return json_response({"graph_id": graph_id, **record.graph.schemas})

    async def send_schemas(_: HttpRequestContext) -> Response:
        schemas = loads(await _call_graph(scope, record, "schemas", {}))
        return json_response({"graph_id": graph_id, **schemas})

    return send_schemas


@endpoints.get("/assistants/{assistant_id}/subgraphs", response=dict[str, responses.Schemas])
def describe_subgraphs(
    context: HttpRequestContext, assistant_id: str, query: SubgraphsQuery
) -> Continuation:
    """Get the schemas of the subgraphs of an assistant's graph, by namespace.

    `recurse` includes the subgraphs of subgraphs.
    """
    params = {"namespace": None, "recurse": query.recurse}
    return partial(_send_answer, *_find_graph(context, assistant_id), "subgraphs", params)


@endpoints.get(
    "/assistants/{assistant_id}/subgraphs/{namespace}", response=dict[str, responses.Schemas]
)
def describe_subgraph(
    context: HttpRequestContext, assistant_id: str, namespace: str, query: SubgraphsQuery
) -> Continuation:
    """Get the schemas of the subgraphs below a namespace; an empty object if it is unknown.

    `recurse` includes the subgraphs of subgraphs.
    """
    params = {"namespace": namespace, "recurse": query.recurse}
    return partial(_send_answer, *_find_graph(context, assistant_id), "subgraphs", params)


def _find_graph(context: HttpRequestContext, assistant_id: str) -> tuple[Scope, GraphRecord]:
    scope = context.admission.resolve_scope("assistants", "read", assistant_id=assistant_id)
    return scope, assistants.get_graph(scope, assistant_id)


async def _send_answer(
    scope: Scope, record: GraphRecord, method: str, params: JSONObject, _: HttpRequestContext
) -> Response:
    return Response(await _call_graph(scope, record, method, params))


def _call_graph(
    scope: Scope, record: GraphRecord, method: str, params: dict[str, Any]
) -> Awaitable[bytes]:
    config = {"config": record.config} if record.config else {}
    return calls.call_graph(
        scope.route, record.graph.graph_id, method, {**params, **config, "user": scope.user}
    )
