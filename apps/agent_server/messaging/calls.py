"""Questions about a graph that only its code can answer: states of busy threads, history, drawings.

A web process puts them into Redis; an engine has the graph host answer. See `messages`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any
from uuid import UUID, uuid4

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
    """The graph, or what runs it, could not answer. `name` is the class of the error there."""

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
    """The JSON of the answer. Waits, so it is for threads, not for an event loop.

    Methods: `state` (`checkpoint`, `subgraphs`) and `history` (`limit`, `before`, `metadata`,
    `checkpoint`) of a thread; `graph` (`xray`), `schemas`, `subgraphs` (`namespace`, `recurse`),
    `describe`. Raises `CallFailed`.
    """
    if sync_bridge.is_on_loop():
        work = acall(revision, graph_id, method, params, thread=thread, seconds=seconds)
        return sync_bridge.await_result(work)
    asked = _build_request(revision, graph_id, method, params, thread, seconds)
    try:
        messages.send_commands(_client(), *asked.commands())
        found: Any = _client().blpop([asked.place], timeout=asked.seconds + 1)
    except redis.RedisError as error:
        raise _unreachable_error() from error
    if found is None:
        raise _timeout_error()
    return _response_body(CallResponse.unpack(found[1]))


async def acall(
    revision: Revision,
    graph_id: str,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    thread: Thread | None = None,
    seconds: float = 60,
) -> bytes:
    """`call` for an event loop."""
    mail = loop_dispatcher()
    asked = _build_request(revision, graph_id, method, params, thread, seconds, mail.channel)
    try:
        return _response_body(await mail.ask(asked, asked.seconds + 1))
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
    given = dict(params or {})
    if thread is not None:
        given["thread_id"] = str(thread.thread_id)
    return CallRequest(
        id=uuid4().bytes,
        answer_to=answer_to,
        asked_at=time.time(),
        seconds=min(seconds, MAX_CALL_SECONDS),
        revision_id=revision.pk.bytes,
        deployment_id=_bytes(revision.deployment_id),
        workspace_id=_bytes(revision.workspace_id),
        graph_id=graph_id,
        method=method,
        thread=_bytes(thread.pk) if thread is not None else b"",
        thread_id=given.get("thread_id") or "",
        params=dumps(given),
    )


def _bytes(key: UUID) -> bytes:
    return key.bytes


def _response_body(answered: CallResponse) -> bytes:
    body = answered.body or b""
    if not answered.done:
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
