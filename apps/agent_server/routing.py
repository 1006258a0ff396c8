"""Routes of an Agent Server that stream or wait: consumers, each with the methods that it takes."""

from django.urls import path
from django.urls.resolvers import URLPattern

from apps.agent_server.consumers import (
    cancelling,
    commanding,
    creating,
    drawings,
    event_socket,
    following,
    joining,
    states,
    storing,
    threads,
)
from apps.agent_server.consumers.exchange import Consumer

_THREAD = "agents/<slug:slug>/threads/<str:thread_id>"
_RUN = f"{_THREAD}/runs/<str:run_id>"
_STATELESS = "agents/<slug:slug>/runs"
_ASSISTANT = "agents/<slug:slug>/assistants/<str:assistant_id>"
_STORE = "agents/<slug:slug>/store"


def _route(address: str, consumer: type[Consumer]) -> URLPattern:
    return path(address, consumer.as_asgi(), {"methods": consumer.methods})  # type: ignore[arg-type]


# The hottest first: they are tried in this order.
http_routes = [
    _route(f"{_THREAD}/runs/wait", creating.WaitForThreadRun),
    _route(f"{_THREAD}/runs/stream", creating.StreamThreadRun),
    _route(f"{_THREAD}/state", states.ThreadState),
    _route(f"{_THREAD}/history", states.ReadHistory),
    _route("agents/<slug:slug>/threads", threads.CreateThread),
    _route(f"{_THREAD}/commands", commanding.Command),
    _route(f"{_THREAD}/stream/events", following.StreamEvents),
    _route(f"{_THREAD}/stream", following.StreamThread),
    _route(f"{_RUN}/join", joining.JoinThreadRun),
    _route(f"{_RUN}/stream", joining.JoinThreadStream),
    _route(f"{_RUN}/cancel", cancelling.CancelRun),
    _route(_RUN, cancelling.DeleteRun),
    _route(f"{_STATELESS}/cancel", cancelling.CancelRuns),
    _route(f"{_STATELESS}/wait", creating.WaitForStatelessRun),
    _route(f"{_STATELESS}/stream", creating.StreamStatelessRun),
    _route(f"{_STATELESS}/<str:run_id>/stream", joining.JoinStatelessStream),
    _route(f"{_STATELESS}/<str:run_id>/join", joining.JoinStatelessRun),
    _route(f"{_THREAD}/state/checkpoint", states.ReadCheckpoint),
    _route(f"{_THREAD}/state/<str:checkpoint_id>", states.ReadCheckpoint),
    _route(f"{_STORE}/items", storing.StoreItems),
    _route(f"{_STORE}/items/search", storing.SearchStore),
    _route(f"{_STORE}/namespaces", storing.ListNamespaces),
    _route(f"{_ASSISTANT}/graph", drawings.DrawGraph),
    _route(f"{_ASSISTANT}/schemas", drawings.DescribeSchemas),
    _route(f"{_ASSISTANT}/subgraphs", drawings.DescribeSubgraphs),
    _route(f"{_ASSISTANT}/subgraphs/<str:namespace>", drawings.DescribeSubgraphs),
]

websocket_routes = [
    path(f"{_THREAD}/stream/events", event_socket.application()),  # type: ignore[arg-type]
]
