"""Section 13.3: the public A2A client, with 1.0 in both bindings and with 0.3."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

CARD = ".well-known/agent-card.json"


@pytest.fixture(params=["1.0", "1.0 HTTP+JSON", "0.3"])
def version(request) -> str:
    """The version, and the binding unless it is JSON-RPC."""
    return str(request.param)


@pytest.fixture
def connect(live, agent_url, version):
    """Return a function that opens a client of a graph's assistant."""

    @asynccontextmanager
    async def connect(graph: str, *, streaming: bool = False) -> AsyncIterator[Client]:
        number, _, binding = version.partition(" ")
        headers = {**live.headers, "A2A-Version": number}
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            url = f"{agent_url}/a2a/{graph}"
            card = await A2ACardResolver(http, url).get_agent_card(relative_card_path=CARD)
            config = ClientConfig(
                httpx_client=http,
                streaming=streaming,
                supported_protocol_bindings=[binding or "JSONRPC"],
            )
            yield ClientFactory(config).create(card)

    return connect


def to_request(*parts: Part, now: bool = False, **fields: str) -> SendMessageRequest:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=parts, **fields)
    configuration = SendMessageConfiguration(return_immediately=now)
    return SendMessageRequest(message=message, configuration=configuration)


def text(value: str) -> Part:
    return Part(text=value)


def data(value: dict) -> Part:
    return Part(data=ParseDict(value, Value()))


async def send(client: Client, request: SendMessageRequest) -> list[StreamResponse]:
    return [response async for response in client.send_message(request)]


async def send_for_task(client: Client, request: SendMessageRequest) -> Task:
    [response] = await send(client, request)
    return response.task


async def test_card_names_the_assistant(connect):
    async with connect("steps") as client:
        card = client._card  # type: ignore[attr-defined]

    assert card.name == "steps"
    assert card.description == "Plans, writes and reviews"
    assert card.capabilities.streaming


async def test_a_card_is_found_without_naming_a_version(live, agent_url):
    async with httpx.AsyncClient(headers=live.headers, timeout=60) as http:
        resolver = A2ACardResolver(http, f"{agent_url}/a2a/chat")
        client = ClientFactory(ClientConfig(httpx_client=http)).create(
            await resolver.get_agent_card()
        )
        events = await send(client, to_request(text("hello")))

    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_message_is_answered_by_a_task(connect):
    async with connect("chat") as client:
        task = await send_for_task(client, to_request(text("hello")))
        again = await client.get_task(GetTaskRequest(id=task.id))

    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [part.text for part in task.artifacts[0].parts] == ["You wrote: hello"]
    assert [message.role for message in task.history] == [Role.ROLE_USER, Role.ROLE_AGENT]
    assert again == task


async def test_context_keeps_the_conversation(connect, client):
    async with connect("chat") as a2a:
        first = await send_for_task(a2a, to_request(text("one")))
        request = to_request(text("two"), context_id=first.context_id)
        second = await send_for_task(a2a, request)

    messages = client.threads.get(first.context_id)["values"]["messages"]
    assert second.id != first.id
    assert [message["content"] for message in messages] == [
        *("one", "You wrote: one", "two", "You wrote: two")
    ]


async def test_stream_has_the_tokens_of_the_model(connect):
    async with connect("chat", streaming=True) as client:
        events = await send(client, to_request(text("words 5")))

    texts = [
        "".join(part.text for part in event.artifact_update.artifact.parts)
        for event in events
        if event.HasField("artifact_update")
    ]
    assert "".join(texts) == "word0 word1 word2 word3 word4"
    assert len(texts) > 2
    assert events[0].HasField("task")
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_interrupt_is_answered_by_a_message(connect):
    async with connect("human") as client:
        paused = await send_for_task(client, to_request(data({"ask": 1})))
        task = await send_for_task(client, to_request(text("yes"), task_id=paused.id))

    assert paused.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert "send it? (0)" in str(paused.status.message)
    assert task.id == paused.id
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert "answer 0: yes" in str(task.artifacts[0])


async def test_working_task_is_cancelled(connect):
    async with connect("slow") as client:
        request = to_request(data({"seconds": 60, "steps": 1}), now=True)
        task = await send_for_task(client, request)
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))

    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED


async def test_subscription_follows_a_task(connect):
    request = to_request(data({"seconds": 0.5, "steps": 2}), now=True)
    async with connect("slow") as client, connect("slow", streaming=True) as subscriber:
        task = await send_for_task(client, request)
        subscription = subscriber.subscribe(SubscribeToTaskRequest(id=task.id))
        events = [event async for event in subscription]

    assert events[0].task.id == task.id
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_file_reaches_the_graph(connect, client):
    picture = Part(raw=base64.b64decode("aGk="), media_type="image/png", filename="a.png")
    async with connect("chat") as a2a:
        task = await send_for_task(a2a, to_request(text("look"), picture))

    message = client.threads.get(task.context_id)["values"]["messages"][0]
    assert message["content"][1]["mime_type"] == "image/png"
    assert message["content"][1]["base64"] == "aGk="


async def test_unknown_task_is_not_found(connect):
    async with connect("chat") as client:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=str(uuid4())))


async def test_addresses_for_notifications_are_kept(connect):
    async with connect("chat") as client:
        task = await send_for_task(client, to_request(text("one")))
        config = TaskPushNotificationConfig(
            task_id=task.id,
            id="p",
            url="https://93.184.216.34/notify",
            token="t0ken",
            authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
        )
        created = await client.create_task_push_notification_config(config)
        read = await client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task.id, id="p")
        )
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="p")
        )
        page = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )

    assert created == read == config
    assert not page.configs


@pytest.mark.parametrize("version", ["1.0", "1.0 HTTP+JSON"], indirect=True)
async def test_tasks_of_a_context_are_listed(connect):
    async with connect("chat") as client:
        first = await send_for_task(client, to_request(text("one")))
        request = to_request(text("two"), context_id=first.context_id)
        second = await send_for_task(client, request)
        page = await client.list_tasks(ListTasksRequest(context_id=first.context_id))

    assert [task.id for task in page.tasks] == [second.id, first.id]
    assert page.total_size == 2
