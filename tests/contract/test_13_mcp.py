"""Section 13.2: the public MCP client, in both forms of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import ElicitResult, ResourceUpdatedNotification

from tests.contract.mcp_tasks import TaskClient
from tests.installation import PATIENCE_SECONDS

MODES = ["legacy", "auto"]


@asynccontextmanager
async def connect(url: str, key: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    headers = {"X-Api-Key": key}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, **options
        ) as client,
    ):
        yield client


@pytest.fixture(params=MODES)
def session(request, live, agent_url):
    """Return a function that opens a session of the client."""
    return lambda **options: connect(agent_url, live.api_key, request.param, **options)


async def test_client_agrees_on_a_version(live, agent_url):
    versions = []
    for mode in MODES:
        async with connect(agent_url, live.api_key, mode) as client:
            versions.append(client.protocol_version)
            assert client.server_info is not None
            assert client.server_info.name == "contract"

    assert versions == ["2025-11-25", "2026-07-28"]


async def test_each_graph_is_a_tool(session):
    async with session() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert {"steps", "chat", "human", "slow"} <= set(tools)
    assert tools["steps"].description == "Plans, writes and reviews"
    assert set(tools["chat"].input_schema["properties"]) == {"messages"}
    assert tools["slow"].input_schema["properties"]["seconds"]["type"] == "number"


async def test_text_starts_a_chat(session):
    async with session() as client:
        await client.list_tools()  # the client checks results against the listed schemas
        result = await client.call_tool("chat", {"messages": "hello"})

    assert not result.is_error
    [question, answer] = result.structured_content["messages"]
    assert (question["content"], answer["content"]) == ("hello", "You wrote: hello")


async def test_progress_is_reported_for_each_step(session):
    steps: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async with session() as client:
        result = await client.call_tool(
            "slow", {"seconds": 0, "steps": 3}, progress_callback=report
        )

    assert result.structured_content["done"] == 3
    assert steps == [(1, "work"), (2, "work"), (3, "work")]


async def test_a_graph_that_asks_a_client_without_a_user_fails(live, agent_url):
    async with connect(agent_url, live.api_key, "legacy") as client:
        result = await client.call_tool("human", {"ask": 1})
    async with connect(agent_url, live.api_key, "auto") as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("human", {"ask": 1})

    assert result.is_error
    assert "send it? (0)" in result.content[0].text
    assert caught.value.code == -32021
    assert caught.value.error.data == {"requiredCapabilities": {"elicitation": {}}}
    assert "send it? (0)" in caught.value.error.message


async def test_a_graph_asks_the_user_of_the_client(session):
    asked = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "yes"})

    async with session(elicitation_callback=answer) as client:
        result = await client.call_tool("human", {"ask": 1})

    assert asked == ["send it? (0)"]
    assert not result.is_error


def test_a_long_call_is_a_task_that_is_polled_or_cancelled(live, agent_url):
    with TaskClient(agent_url, live.api_key) as client:
        short = client.start("slow", seconds=3, steps=1)
        endless = client.start("slow", seconds=60, steps=60)
        client.cancel(endless)
        completed = client.wait_for_end(short, PATIENCE_SECONDS)
        cancelled = client.wait_for_end(endless, PATIENCE_SECONDS)

    assert completed["status"] == "completed"
    assert completed["result"]["structuredContent"]["done"] == 1
    assert cancelled["status"] == "cancelled"
    assert "result" not in cancelled


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_session_is_told_of_a_changed_thread(live, agent_url, client):
    updated: asyncio.Queue[str] = asyncio.Queue()
    thread_id = client.threads.create()["thread_id"]

    async def receive(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updated.put_nowait(str(message.params.uri))

    options = {"message_handler": receive}
    async with connect(agent_url, live.api_key, "legacy", **options) as session:
        await session.subscribe_resource(f"thread:///{thread_id}")
        await asyncio.to_thread(client.runs.wait, thread_id, "steps", input={})
        told = await asyncio.wait_for(updated.get(), 60)

    assert told == f"thread:///{thread_id}"


async def test_a_client_listens_to_a_thread(live, agent_url, client):
    thread_id = client.threads.create()["thread_id"]
    uri = f"thread:///{thread_id}"

    async with (
        connect(agent_url, live.api_key, "auto") as session,
        session.listen(resource_subscriptions=[uri], tools_list_changed=True) as subscription,
    ):
        await asyncio.to_thread(client.threads.update, thread_id, metadata={"a": 1})
        event = await asyncio.wait_for(anext(subscription), 60)

    assert subscription.honored.resource_subscriptions == [uri]
    assert subscription.honored.tools_list_changed is None
    assert event == ResourceUpdated(uri=uri)


@pytest.mark.parametrize("mode", MODES)
async def test_the_platforms_own_server_has_tools(live, mode):
    async with connect(live.url, live.api_key, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("list_deployments", {})
        failed = await client.call_tool("read_run", {"run_id": "no uuid"})

    assert tools["list_deployments"].annotations.read_only_hint
    assert result.structured_content["deployments"]
    assert failed.is_error


async def test_unknown_tool_is_an_error(session):
    async with session() as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("missing", {})

    assert caught.value.code == -32602


async def test_session_outlives_a_cancelled_call(session):
    started = asyncio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with session() as client:
        arguments = {"seconds": 1, "steps": 60}
        call = asyncio.create_task(client.call_tool("slow", arguments, progress_callback=report))
        await asyncio.wait_for(started.wait(), 60)
        call.cancel()
        [outcome] = await asyncio.gather(call, return_exceptions=True)
        result = await client.call_tool("slow", {"seconds": 0, "steps": 1})

    assert isinstance(outcome, asyncio.CancelledError)
    assert result.structured_content["done"] == 1


async def test_wrong_key_is_refused(agent_url):
    with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPError)):
        async with connect(agent_url, "slip_wrong", "legacy"):
            pass
