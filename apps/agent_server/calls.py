"""Questions about a graph that only its code can answer: states of busy threads, history, drawings.

The web process asks with `call`; a worker's engine has the graph host answer, and the answer comes
back through a Redis list of the call's own.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import UUID, uuid4

import msgpack
import redis
from django.conf import settings

from apps.agent_server.engine.calls import Question, Reply
from apps.agent_server.engine.engine import Engine
from apps.agent_server.engine.hosts import RevisionRef
from apps.agent_server.models import Thread
from apps.core import errors
from apps.core.json import dumps, loads
from apps.deployments.models import Revision

KEPT_SECONDS = 60
LONGEST_SECONDS = 120


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
    from apps.agent_server import tasks  # noqa: PLC0415  (tasks import this module)

    seconds = min(seconds, LONGEST_SECONDS)
    call_id = uuid4().hex
    given = dict(params or {})
    if thread is not None:
        given["thread_id"] = str(thread.thread_id)
    asked = {
        "revision_id": str(revision.pk),
        "deployment_id": str(revision.deployment_id),
        "workspace_id": str(revision.workspace_id),
        "graph_id": graph_id,
        "method": method,
        "thread": str(thread.pk) if thread is not None else None,
        "params": given,
    }
    try:
        tasks.call.apply_async((call_id, asked, seconds), expires=seconds)
        found: Any = _client().blpop([_key(call_id)], timeout=seconds + 1)
    except redis.RedisError as error:
        raise CallFailed("RedisError", "The platform cannot reach its graphs now.") from error
    if found is None:
        raise CallFailed("TimeoutError", "The graph did not answer in time.")
    done, body = msgpack.unpackb(found[1])
    if not done:
        reason = loads(body)
        raise CallFailed(reason["error"], reason["message"])
    answer: bytes = body
    return answer


async def answer(engine: Engine, call_id: str, asked: dict[str, Any], seconds: float) -> None:
    """Put the question to the graph host and leave the reply where the caller waits."""
    thread = asked["thread"]
    question = Question(
        revision=RevisionRef(
            UUID(asked["revision_id"]), UUID(asked["deployment_id"]), UUID(asked["workspace_id"])
        ),
        graph_id=asked["graph_id"],
        method=asked["method"],
        thread=UUID(thread) if thread else None,
        thread_id=asked["params"].get("thread_id"),
        params=dumps(asked["params"]),
    )
    reply: Reply = await engine.ask(question, seconds)
    await engine.redis.run(
        ("RPUSH", _key(call_id), msgpack.packb([reply.done, reply.body])),
        ("EXPIRE", _key(call_id), KEPT_SECONDS),
    )


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=LONGEST_SECONDS + 5)


def _key(call_id: str) -> str:
    return f"slipway:call:{call_id}"
