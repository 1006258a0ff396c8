"""Routes of an Agent Server that stream or wait: consumers, each with the methods that it takes."""

from django.urls import path
from django.urls.resolvers import URLPattern

from apps.agent_server.consumers import (
    cancel_runs,
    commands,
    create_run,
    drawings,
    event_socket,
    join_run,
    states,
    store,
    thread_stream,
    threads,
)
from apps.agent_server.consumers.http_request import Consumer

_THREAD = "agents/<slug:slug>/threads/<str:thread_id>"
_RUN = f"{_THREAD}/runs/<str:run_id>"
_STATELESS = "agents/<slug:slug>/runs"
_ASSISTANT = "agents/<slug:slug>/assistants/<str:assistant_id>"
_STORE = "agents/<slug:slug>/store"


def _route(address: str, consumer: type[Consumer]) -> URLPattern:
    return path(address, consumer.as_asgi(), {"methods": consumer.methods})  # type: ignore[arg-type]


# The hottest first: they are tried in this order.
http_routes = [
    _route(f"{_THREAD}/runs/wait", create_run.WaitForThreadRun),
    _route(f"{_THREAD}/runs/stream", create_run.StreamThreadRun),
    _route(f"{_THREAD}/state", states.ThreadState),
    _route(f"{_THREAD}/history", states.ReadHistory),
    _route("agents/<slug:slug>/threads", threads.CreateThread),
    _route(f"{_THREAD}/commands", commands.Command),
    _route(f"{_THREAD}/stream/events", thread_stream.StreamEvents),
    _route(f"{_THREAD}/stream", thread_stream.StreamThread),
    _route(f"{_RUN}/join", join_run.JoinThreadRun),
    _route(f"{_RUN}/stream", join_run.JoinThreadStream),
    _route(f"{_RUN}/cancel", cancel_runs.CancelRun),
    _route(_RUN, cancel_runs.DeleteRun),
    _route(f"{_STATELESS}/cancel", cancel_runs.CancelRuns),
    _route(f"{_STATELESS}/wait", create_run.WaitForStatelessRun),
    _route(f"{_STATELESS}/stream", create_run.StreamStatelessRun),
    _route(f"{_STATELESS}/<str:run_id>/stream", join_run.JoinStatelessStream),
    _route(f"{_STATELESS}/<str:run_id>/join", join_run.JoinStatelessRun),
    _route(f"{_THREAD}/state/checkpoint", states.ReadCheckpoint),
    _route(f"{_THREAD}/state/<str:checkpoint_id>", states.ReadCheckpoint),
    _route(f"{_STORE}/items", store.StoreItems),
    _route(f"{_STORE}/items/search", store.SearchStore),
    _route(f"{_STORE}/namespaces", store.ListNamespaces),
    _route(f"{_ASSISTANT}/graph", drawings.DrawGraph),
    _route(f"{_ASSISTANT}/schemas", drawings.DescribeSchemas),
    _route(f"{_ASSISTANT}/subgraphs", drawings.DescribeSubgraphs),
    _route(f"{_ASSISTANT}/subgraphs/<str:namespace>", drawings.DescribeSubgraphs),
]

websocket_routes = [
    path(f"{_THREAD}/stream/events", event_socket.application()),  # type: ignore[arg-type]
]
