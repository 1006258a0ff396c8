"""Graph calls: requests that only a graph's code can answer, such as history and drawings.

A web process sends them through Redis to an engine, whose graph host executes them. See
`messages`.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

from apps.agent_server.errors import AgentNotReady, AgentStopped
from apps.agent_server.messaging.messages import CallRequest
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.messaging.redis_dispatcher import loop_dispatcher
from apps.agent_server.models import Thread
from apps.core import errors
from apps.core.json import dumps, loads
from apps.deployments.routes import Route

MAX_CALL_SECONDS = 120


class CallFailed(errors.Unavailable):
    """The graph or its host failed. `name` is the class of the original error."""

    code = "graph_did_not_answer"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class GraphFailed(CallFailed):
    """The graph's own code raised; a retry would fail again."""

    status, code = 400, "graph_failed"


async def call_graph(
    route: Route,
    graph_id: str,
    method: str,
    params: dict[str, Any],
    *,
    thread: Thread | None = None,
    revision_id: UUID | None = None,
    seconds: float = 60,
) -> bytes:
    """Call a graph of the active or the given revision; return the JSON of its response.

    Methods: `state` (`checkpoint`, `subgraphs`) and `history` (`limit`, `before`, `metadata`,
    `checkpoint`) of a thread; `graph` (`xray`), `schemas`, `subgraphs` (`namespace`, `recurse`),
    `auth`, `embed`, `web`. Raises `GraphFailed` if the graph's code raised, `CallFailed` if the
    platform did not get a response, `AgentNotReady` and `AgentStopped` for a deployment that does
    not serve.
    """
    revision_id = revision_id or route.active_revision_id
    if revision_id is None:
        raise AgentNotReady
    if route.is_stopped:
        raise AgentStopped
    arguments = dict(params)
    if thread is not None:
        arguments["thread_id"] = str(thread.thread_id)
    dispatcher = loop_dispatcher()
    request = CallRequest(
        id=uuid4().bytes,
        response_channel=dispatcher.channel,
        sent_at=time.time(),
        seconds=min(seconds, MAX_CALL_SECONDS),
        revision_id=revision_id.bytes,
        deployment_id=route.deployment_id.bytes,
        workspace_id=route.workspace_id.bytes,
        graph_id=graph_id,
        method=method,
        thread=thread.pk.bytes if thread is not None else b"",
        thread_id=arguments.get("thread_id") or "",
        params=dumps(arguments),
    )
    try:
        response = await dispatcher.call(request, request.seconds + 1)
    except RedisLost as error:
        raise CallFailed("RedisError", "The platform cannot reach its graphs now.") from error
    except TimeoutError as error:
        raise CallFailed("TimeoutError", "The graph did not answer in time.") from error
    body = response.body or b""
    if not response.succeeded:
        reason = loads(body)
        name, message = reason["error"], reason["message"]
        if graph_id and reason.get("is_of_agent"):
            text = message if name == "ProjectError" else f"{name}: {message}"
            raise GraphFailed(name, f"Graph '{graph_id}' failed with {text}")
        raise CallFailed(name, message)
    return body
