from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.http.response import HttpResponseBase
from django.test import Client

from apps.core.http.loop_response import LoopResponse
from apps.organizations.models import Workspace
from apps.playground.api import views as api_views
from apps.playground.services import completion, streaming
from apps.trace_store.postgres import partitions
from tests.providers.conftest import keys, provider
from tests.shared_connection import share_connection
from tests.tracing.conftest import api, make_api, objects, page

__all__ = ["api", "keys", "make_api", "objects", "page", "provider"]


@pytest.fixture(autouse=True)
def forget_partitions() -> Iterator[None]:
    partitions._covered_until.clear()
    yield
    partitions._covered_until.clear()


@pytest.fixture(autouse=True)
def shared_connection(db, monkeypatch) -> Iterator[None]:
    """Let the threads of streams use the connection of the test, with its transaction."""
    with share_connection(monkeypatch, streaming, completion, api_views):
        yield


@pytest.fixture
def base(workspace: Workspace) -> str:
    return f"/o/{workspace.pk}/playground"


def setting(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A setting as JSON; without messages, it asks `{question}`."""
    model = {"provider": "openai", "model": "gpt-4.1-mini"} | fields.pop("model", {})
    default = [{"role": "human", "content": "{question}"}]
    return {"messages": list(messages) or default, "model": model, **fields}


def send(client: Client, url: str, body: Any, method: str = "post") -> Any:
    """Send JSON as a script of the page does."""
    request = getattr(client, method)
    headers = {"accept": "*/*"}
    return request(url, json.dumps(body), content_type="application/json", headers=headers)


def read(response: HttpResponseBase) -> bytes:
    """The whole content of a response that the event loop produces."""
    assert isinstance(response, LoopResponse)

    async def collect() -> bytes:
        return b"".join([piece async for piece in response.stream])

    return asyncio.run(collect())


def events(response: HttpResponseBase) -> list[tuple[str, Any]]:
    """The names and data of a stream's events."""
    result = []
    for block in read(response).decode().split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n")
            result.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return result


def run_column(client: Client, base: str, **fields: Any) -> list[tuple[str, Any]]:
    body = {"setting": setting(), "variables": {"question": "Why?"}} | fields
    return events(send(client, f"{base}/stream", body))
