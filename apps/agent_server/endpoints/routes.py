"""All routes of an Agent Server, and the endpoint of the document that describes them."""

from django.urls import path

from apps.agent_server.endpoints import (
    assistants,
    commands,
    crons,
    event_socket,
    graphs,
    run_streams,
    runs,
    states,
    store,
    system,
    thread_stream,
    threads,
    webhooks,
)
from apps.agent_server.endpoints.endpoint import EndpointGroup
from apps.agent_server.endpoints.openapi import OpenAPIDocument
from apps.agent_server.endpoints.route_table import RouteTable
from apps.agent_server.web.http_context import HttpRequestContext, Response

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
    *webhooks.endpoints,
    *crons.endpoints,
    *store.endpoints,
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
