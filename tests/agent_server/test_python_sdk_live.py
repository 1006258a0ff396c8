"""The public Python client against the whole platform and its sample agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import NotFoundError

GRAPH = "agent"
APPROVAL = {"decisions": [{"type": "approve"}]}


def user_message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture
async def agents(sample_agent) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=sample_agent.url, api_key=sample_agent.api_key) as client:
        yield client


async def test_thread_is_created_streamed_joined_and_read(agents):
    thread = await agents.threads.create()
    chunks = [
        chunk
        async for chunk in agents.runs.stream(
            thread["thread_id"],
            GRAPH,
            input=user_message("What is 12 * 7 + 1?"),
            stream_mode=["updates", "messages"],
        )
    ]
    run_id = chunks[0].data["run_id"]
    values = await agents.runs.join(thread["thread_id"], run_id)
    state = await agents.threads.get_state(thread["thread_id"])
    run = await agents.runs.get(thread["thread_id"], run_id)

    names = [chunk.event for chunk in chunks]
    assert names[0] == "metadata"
    assert chunks[0].data == {"run_id": run_id, "attempt": 1}
    assert "updates" in names
    assert names.index("messages/metadata") < names.index("messages/partial")
    assert names[-1] == "end"
    assert run["status"] == "success"
    contents = [message["content"] for message in state["values"]["messages"]]
    assert contents[0] == "What is 12 * 7 + 1?"
    assert "85" in contents[-1]
    assert values["messages"] == state["values"]["messages"]
    assert state["next"] == []
    assert state["checkpoint"]["thread_id"] == thread["thread_id"]


async def test_the_state_has_the_messages_of_twenty_runs_in_the_order_of_receipt(agents):
    thread = await agents.threads.create()
    thread_id = thread["thread_id"]

    runs = await asyncio.gather(
        *[agents.runs.create(thread_id, GRAPH, input=user_message(f"Line {n}")) for n in range(20)]
    )
    in_order = sorted(runs, key=lambda run: run["created_at"])
    await agents.runs.join(thread_id, in_order[-1]["run_id"])

    state = await agents.threads.get_state(thread_id)
    prompts = [m["content"] for m in state["values"]["messages"] if m["type"] == "human"]
    assert prompts == [run["kwargs"]["input"]["messages"][0]["content"] for run in in_order]
    assert sorted(prompts) == sorted(f"Line {n}" for n in range(20))
    assert in_order == sorted(runs, key=lambda run: run["run_id"])
    listed = await agents.runs.list(thread_id, limit=20)
    assert [run["run_id"] for run in reversed(listed)] == [run["run_id"] for run in in_order]
    assert {run["status"] for run in listed} == {"success"}
    assert (await agents.threads.get(thread_id))["status"] == "idle"


async def test_interrupt_stops_the_thread_until_it_is_resumed(agents):
    thread_id = (await agents.threads.create())["thread_id"]
    mail = user_message("Send a mail to ann@example.com about the invoice.")

    interrupted = await agents.runs.wait(thread_id, GRAPH, input=mail)
    waiting = await agents.threads.get(thread_id)
    resumed = await agents.runs.wait(thread_id, GRAPH, command={"resume": APPROVAL})

    [question] = interrupted["__interrupt__"]
    assert set(question) == {"id", "value", "response_schema"}
    assert waiting["status"] == "interrupted"
    [[interrupt]] = waiting["interrupts"].values()
    assert interrupt == {"id": question["id"], "value": question["value"]}
    assert "__interrupt__" not in resumed
    assert (await agents.threads.get(thread_id))["status"] == "idle"
    history = await agents.threads.get_history(thread_id, limit=100)
    assert history[0]["values"]["messages"] == resumed["messages"]
    assert history[-1]["metadata"]["step"] == -1


async def test_stateless_run_leaves_no_thread(agents):
    created: list[Any] = []
    answer = await agents.runs.wait(
        None, GRAPH, input=user_message("Hello"), on_run_created=created.append
    )
    modes = [
        chunk.event
        async for chunk in agents.runs.stream(
            None, GRAPH, input=user_message("Hello"), stream_mode="messages-tuple"
        )
    ]

    assert answer["messages"][-1]["type"] == "ai"
    assert modes[0] == "metadata"
    assert set(modes[1:-1]) == {"messages"}
    with pytest.raises(NotFoundError):
        await agents.threads.get(created[0]["thread_id"])


async def test_stream_resumes_after_the_last_event(agents):
    thread_id = (await agents.threads.create())["thread_id"]
    stream = agents.runs.stream(
        thread_id,
        GRAPH,
        input=user_message("Tell me something long"),
        stream_mode=["messages-tuple", "values"],
        stream_resumable=True,
    )
    chunks = [chunk async for chunk in stream]
    run_id, middle = chunks[0].data["run_id"], chunks[len(chunks) // 2]

    remaining = [
        chunk async for chunk in agents.runs.join_stream(thread_id, run_id, last_event_id=middle.id)
    ]
    everything = [
        chunk async for chunk in agents.runs.join_stream(thread_id, run_id, last_event_id="-1")
    ]

    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert remaining == chunks[len(chunks) // 2 + 1 :]
    assert everything == chunks


async def test_assistants_are_searched_drawn_and_described(agents):
    # Other tests create assistants of their own.
    metadata = {"created_by": "system"}
    [assistant] = await agents.assistants.search(metadata=metadata, limit=10, offset=0)
    same = await agents.assistants.get(assistant["assistant_id"])
    drawing = await agents.assistants.get_graph(GRAPH)
    detailed_drawing = await agents.assistants.get_graph(GRAPH, xray=True)
    schemas = await agents.assistants.get_schemas(assistant["assistant_id"])

    assert same == assistant
    assert (assistant["graph_id"], assistant["version"]) == (GRAPH, 1)
    assert {"id": "__end__"} in drawing["nodes"]
    assert len(detailed_drawing["nodes"]) > len(drawing["nodes"])
    assert "messages" in schemas["input_schema"]["properties"]
