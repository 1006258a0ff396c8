"""Graph calls: requests that only a graph's code can answer, such as history and drawings.

A web process sends them through Redis to an engine, whose graph host executes them. See
`messages`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any
from uuid import uuid4

import redis
from django.conf import settings

from apps.agent_server.messaging import messages
from apps.agent_server.messaging.messages import CallRequest, CallResponse
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.messaging.redis_dispatcher import loop_dispatcher
from apps.agent_server.models import Thread
from apps.core import errors, sync_bridge
from apps.core.json import dumps, loads
from apps.deployments.models import Revision

MAX_CALL_SECONDS = 120


class CallFailed(errors.Unavailable):
    """The graph or its host failed. `name` is the class of the original error."""

    code = "graph_did_not_answer"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def call(
    revision: Revision,
    graph_id: str,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    thread: Thread | None = None,
    seconds: float = 60,
) -> bytes:
    """Call a graph and return the JSON of its response. Blocks a thread while it waits.

    Methods: `state` (`checkpoint`, `subgraphs`) and `history` (`limit`, `before`, `metadata`,
    `checkpoint`) of a thread; `graph` (`xray`), `schemas`, `subgraphs` (`namespace`, `recurse`),
    `describe`. Raises `CallFailed`.
    """
    if sync_bridge.is_on_loop():
        work = acall(revision, graph_id, method, params, thread=thread, seconds=seconds)
        return sync_bridge.await_result(work)
    request = _build_request(revision, graph_id, method, params, thread, seconds)
    try:
        messages.send_commands(_client(), *request.commands())
        entry: Any = _client().blpop([request.response_key], timeout=request.seconds + 1)
    except redis.RedisError as error:
        raise _unreachable_error() from error
    if entry is None:
        raise _timeout_error()
    return _response_body(CallResponse.unpack(entry[1]))


async def acall(
    revision: Revision,
    graph_id: str,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    thread: Thread | None = None,
    seconds: float = 60,
) -> bytes:
    """`call` for use on an event loop."""
    dispatcher = loop_dispatcher()
    request = _build_request(
        revision, graph_id, method, params, thread, seconds, dispatcher.channel
    )
    try:
        return _response_body(await dispatcher.call(request, request.seconds + 1))
    except RedisLost as error:
        raise _unreachable_error() from error
    except TimeoutError as error:
        raise _timeout_error() from error


def _build_request(  # noqa: PLR0917
    revision: Revision,
    graph_id: str,
    method: str,
    params: dict[str, Any] | None,
    thread: Thread | None,
    seconds: float,
    answer_to: str = "",
) -> CallRequest:
    arguments = dict(params or {})
    if thread is not None:
        arguments["thread_id"] = str(thread.thread_id)
    return CallRequest(
        id=uuid4().bytes,
        answer_to=answer_to,
        asked_at=time.time(),
        seconds=min(seconds, MAX_CALL_SECONDS),
        revision_id=revision.pk.bytes,
        deployment_id=revision.deployment_id.bytes,
        workspace_id=revision.workspace_id.bytes,
        graph_id=graph_id,
        method=method,
        thread=thread.pk.bytes if thread is not None else b"",
        thread_id=arguments.get("thread_id") or "",
        params=dumps(arguments),
    )


def _response_body(response: CallResponse) -> bytes:
    body = response.body or b""
    if not response.succeeded:
        reason = loads(body)
        raise CallFailed(reason["error"], reason["message"])
    return body


def _unreachable_error() -> CallFailed:
    return CallFailed("RedisError", "The platform cannot reach its graphs now.")


def _timeout_error() -> CallFailed:
    return CallFailed("TimeoutError", "The graph did not answer in time.")


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=MAX_CALL_SECONDS + 5)
