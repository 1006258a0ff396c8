"""Calls of the public client that several contract tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import APIStatusError


def rejection(call: Callable[..., object], *arguments: Any, **options: Any) -> tuple[int, str]:
    """Return the status and detail with which the server rejects the call."""
    with pytest.raises(APIStatusError) as caught:
        call(*arguments, **options)
    response = caught.value.response
    return response.status_code, response.json()["detail"]


def run_graph(
    client: SyncLangGraphClient, graph: str = "steps", metadata: Any = None, **run: Any
) -> str:
    """Run the graph on a new thread and return the id of the thread."""
    thread_id = client.threads.create(metadata=metadata)["thread_id"]
    client.runs.wait(thread_id, graph, **{"input": {"notes": ["start"]}, **run})
    return thread_id
