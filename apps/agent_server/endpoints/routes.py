"""All routes of an Agent Server, and the table that finds the endpoint of a path.

The table is a segment trie, so its cost does not depend on the number of endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.urls import path

from apps.agent_server.endpoints import (
    a2a,
    a2a_http,
    assistants,
    commands,
    crons,
    event_socket,
    graphs,
    mcp,
    run_streams,
    runs,
    states,
    store,
    system,
    thread_stream,
    threads,
)
from apps.agent_server.endpoints.endpoint import Endpoint, EndpointGroup
from apps.agent_server.endpoints.openapi import OpenAPIDocument
from apps.agent_server.web.http_context import HttpRequestContext, Response


class RouteMatch(NamedTuple):
    """An endpoint and the parameters from the path."""

    endpoint: Endpoint
    path_params: dict[str, str]


class _Node:
    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}
        """By method."""


class RouteTable:
    """Endpoints by path and method; a literal segment wins over a parameter.

    A GET endpoint that responds at once also serves HEAD.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            for template in (endpoint.path, *endpoint.aliases):
                self._add(template, endpoint)

    def _add(self, template: str, endpoint: Endpoint) -> None:
        node = self._root
        for segment in template[1:].split("/"):
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        if endpoint.method in node.endpoints:
            raise ValueError(f"{endpoint.method} {template} is declared twice.")
        node.endpoints[endpoint.method] = endpoint
        if endpoint.method == "GET" and endpoint.responds_at_once:
            node.endpoints["HEAD"] = endpoint

    def find(self, path: str, method: str) -> RouteMatch | None:
        """Return the endpoint of a path (with leading slash) for the method, or None."""
        values: list[str] = []
        node = _find(self._root, path[1:].split("/"), 0, method, values)
        if node is None:
            return None
        endpoint = node.endpoints[method]
        return RouteMatch(endpoint, dict(zip(endpoint.parameters, reversed(values), strict=True)))

    def methods(self, path: str) -> list[str]:
        """Return the methods that the path has; empty for an unknown path.

        A path with an endpoint that responds at once also has OPTIONS.
        """
        matches = {method: self.find(path, method) for method in _METHODS}
        methods = [method for method, match in matches.items() if match is not None]
        if any(match is not None and match.endpoint.responds_at_once for match in matches.values()):
            methods.append("OPTIONS")
        return methods


_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


def _find(
    node: _Node, segments: list[str], depth: int, method: str, values: list[str]
) -> _Node | None:
    """Return the node of the segments that has the method; appends parameters, last one first."""
    if depth == len(segments):
        return node if method in node.endpoints else None
    segment = segments[depth]
    child = node.literals.get(segment)
    if child is not None:
        match = _find(child, segments, depth + 1, method, values)
        if match is not None:
            return match
    if node.parameter is not None and segment:
        match = _find(node.parameter, segments, depth + 1, method, values)
        if match is not None:
            values.append(segment)
            return match
    return None


_document_endpoints = EndpointGroup("system")


@_document_endpoints.get("/openapi.json", is_public=True, response=dict[str, object])
def get_openapi_document(context: HttpRequestContext) -> Response:
    """Get this document, in OpenAPI 3.1."""
    return Response(openapi_document.for_agent(context.path_params["slug"]))


ENDPOINTS = (
    *assistants.endpoints,
    *graphs.endpoints,
    *threads.endpoints,
    *states.endpoints,
    *thread_stream.endpoints,
    *commands.endpoints,
    *runs.endpoints,
    *run_streams.endpoints,
    *crons.endpoints,
    *store.endpoints,
    *a2a.endpoints,
    *a2a_http.endpoints,
    *mcp.endpoints,
    *system.endpoints,
    *_document_endpoints,
)
route_table = RouteTable(ENDPOINTS)
openapi_document = OpenAPIDocument(ENDPOINTS)

websocket_routes = [
    path(
        "agents/<slug:slug>/threads/<str:thread_id>/stream/events",
        event_socket.application(),  # type: ignore[arg-type]
    ),
]
