"""Putting a question to a graph from an event loop."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from apps.agent_server.calls import call
from apps.agent_server.models import Thread
from apps.deployments.models import Revision
from apps.deployments.routes import Route

MOST_CALLS_AT_ONCE = 32


@functools.cache
def _callers() -> ThreadPoolExecutor:
    """Threads that wait for graphs, apart from those that serve requests from the database."""
    return ThreadPoolExecutor(MOST_CALLS_AT_ONCE, thread_name_prefix="calls")


async def ask(
    route: Route,
    graph_id: str,
    method: str,
    params: dict[str, Any],
    *,
    thread: Thread | None = None,
    revision_id: UUID | None = None,
) -> bytes:
    """The graph's answer as JSON."""
    revision = Revision(
        pk=revision_id or route.active_revision_id,
        deployment_id=route.deployment_id,
        workspace_id=route.workspace_id,
    )
    question = functools.partial(call, revision, graph_id, method, params, thread=thread)
    return await asyncio.get_running_loop().run_in_executor(_callers(), question)
