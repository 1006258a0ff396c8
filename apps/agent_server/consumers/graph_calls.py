"""Putting a question to a graph from an event loop."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server.messaging.calls import acall
from apps.agent_server.models import Thread
from apps.deployments.models import Revision
from apps.deployments.routes import Route


async def call_graph(
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
    return await acall(revision, graph_id, method, params, thread=thread)
