"""Routes of an Agent Server that stream or wait: consumers, each with the methods that it takes."""

from django.urls import path
from django.urls.resolvers import URLPattern

from apps.agent_server import consumers, questions
from apps.agent_server.exchange import Consumer

_THREAD = "agents/<slug:slug>/threads/<str:thread_id>"
_RUN = f"{_THREAD}/runs/<str:run_id>"
_STATELESS = "agents/<slug:slug>/runs"
_ASSISTANT = "agents/<slug:slug>/assistants/<str:assistant_id>"


def _route(address: str, consumer: type[Consumer]) -> URLPattern:
    return path(address, consumer.as_asgi(), {"methods": consumer.methods})  # type: ignore[arg-type]


# The hottest first: they are tried in this order.
http_routes = [
    _route(f"{_THREAD}/runs/wait", consumers.WaitForThreadRun),
    _route(f"{_THREAD}/runs/stream", consumers.StreamThreadRun),
    _route(f"{_THREAD}/state", questions.ReadState),
    _route(f"{_THREAD}/history", questions.ReadHistory),
    _route(f"{_RUN}/join", consumers.JoinThreadRun),
    _route(f"{_RUN}/stream", consumers.JoinThreadStream),
    _route(f"{_RUN}/cancel", consumers.CancelRun),
    _route(f"{_STATELESS}/wait", consumers.WaitForStatelessRun),
    _route(f"{_STATELESS}/stream", consumers.StreamStatelessRun),
    _route(f"{_STATELESS}/<str:run_id>/stream", consumers.JoinStatelessStream),
    _route(f"{_STATELESS}/<str:run_id>/join", consumers.JoinStatelessRun),
    _route(f"{_THREAD}/state/checkpoint", questions.ReadCheckpoint),
    _route(f"{_THREAD}/state/<str:checkpoint_id>", questions.ReadCheckpoint),
    _route(f"{_ASSISTANT}/graph", questions.DrawGraph),
    _route(f"{_ASSISTANT}/subgraphs", questions.DescribeSubgraphs),
    _route(f"{_ASSISTANT}/subgraphs/<str:namespace>", questions.DescribeSubgraphs),
]
