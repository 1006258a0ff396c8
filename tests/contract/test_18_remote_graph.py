"""`RemoteGraph` of the public library: a deployed graph used as a local one."""

from __future__ import annotations

import operator
from typing import Annotated
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph.types import Command, Interrupt
from langgraph_sdk import get_client, get_sync_client
from typing_extensions import TypedDict

STEPS = ["plan", "write", "review"]


@pytest.fixture
async def remote(live, agent_url):
    """A function that returns a graph of the agent by its name."""
    async with get_client(url=agent_url, api_key=live.api_key) as async_client:
        with get_sync_client(url=agent_url, api_key=live.api_key) as client:
            yield lambda name: RemoteGraph(name, client=async_client, sync_client=client)


@pytest.fixture
def thread_config() -> dict:
    """The config of a thread that the first run creates."""
    return {"configurable": {"thread_id": str(uuid4())}}


def user_message(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


def test_invoke_returns_the_last_values(remote):
    assert remote("steps").invoke({"notes": ["start"]})["notes"] == ["start", *STEPS]


async def test_ainvoke_returns_the_last_values(remote):
    result = await remote("steps").ainvoke({"notes": ["start"]})

    assert result["notes"] == ["start", *STEPS]


def test_a_thread_is_created_by_the_first_run_and_kept(remote, thread_config):
    remote("steps").invoke({}, thread_config)

    assert remote("steps").invoke({}, thread_config)["count"] == 6


def test_an_assistant_is_named_by_its_id(remote, client):
    assistant = client.assistants.create("context", context={"tone": "curt"})

    assert remote(assistant["assistant_id"]).invoke({})["answer"] == "curt 3"


def test_a_context_beside_the_thread_reaches_the_graph(remote, thread_config):
    result = remote("context").invoke({}, thread_config, context={"tone": "curt"})

    assert result["answer"] == "curt 3"


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("values", {"notes": ["start"]}),
        ("custom", {"at": "plan"}),
    ],
)
def test_a_single_mode_streams_bare_data(remote, mode, first):
    parts = list(remote("steps").stream({"notes": ["start"]}, stream_mode=mode))

    assert parts[0] == first


def test_updates_are_streamed_by_node(remote):
    parts = remote("steps").stream({}, stream_mode="updates")

    assert [list(part) for part in parts] == [["plan"], ["write"], ["review"]]


def test_messages_are_streamed_in_chunks(remote):
    parts = list(remote("chat").stream(user_message("words 4"), stream_mode="messages"))

    assert "".join(piece["content"] for piece, _ in parts) == "word0 word1 word2 word3"
    assert {metadata["langgraph_node"] for _, metadata in parts} == {"agent"}


@pytest.mark.parametrize("mode", ["tasks", "checkpoints", "debug"])
def test_modes_of_the_engine_are_streamed(remote, mode, thread_config):
    parts = list(remote("steps").stream({}, thread_config, stream_mode=mode))

    assert len(parts) == {"tasks": 6, "checkpoints": 5, "debug": 11}[mode]


def test_several_modes_are_streamed_with_their_names(remote):
    parts = remote("steps").stream({}, stream_mode=["values", "custom"])

    assert {part.event for part in parts} == {"values", "custom"}


async def test_subgraphs_are_streamed_with_their_path(remote):
    parts = [
        (tuple(label.partition(":")[0] for label in path), data)
        async for path, data in remote("nested").astream(
            {"topic": "cats"}, stream_mode="custom", subgraphs=True
        )
    ]

    assert parts == [
        (("research",), {"outlining": "cats"}),
        (("research", "search"), {"fetching": "cats"}),
    ]


def test_stream_v2_has_typed_parts(remote):
    parts = list(remote("human").stream({}, stream_mode="values", version="v2"))

    assert [part["type"] for part in parts] == ["values", "values"]
    [question] = parts[-1]["interrupts"]
    assert question.value == {"approve": "send it? (0)"}
    assert "__interrupt__" not in parts[-1]["data"]


def test_a_failure_is_raised_with_its_class_and_message(remote):
    with pytest.raises(RemoteException) as raised:
        remote("steps").invoke({"fail": "write"})

    assert raised.value.args[0] == {"error": "ValueError", "message": "no such city"}


def test_an_interrupt_is_returned_and_resumed_by_a_command(remote, thread_config):
    graph = remote("human")

    interrupted = graph.invoke({}, thread_config)
    resumed = graph.invoke(Command(resume="yes"), thread_config)

    assert interrupted["__interrupt__"][0]["value"] == {"approve": "send it? (0)"}
    assert resumed["notes"] == ["draft", "answer 0: yes", "sent"]


async def test_several_interrupts_are_resumed_by_id(remote, thread_config):
    graph = remote("human")
    await graph.ainvoke({"ask": 2}, thread_config)

    interrupts = (await graph.aget_state(thread_config)).interrupts
    answers = {question.id: question.value["approve"] for question in interrupts}
    resumed = await graph.ainvoke(Command(resume=answers), thread_config)

    assert sorted(resumed["notes"][1:3]) == [
        "answer 0: send it? (0)",
        "answer 1: send it? (1)",
    ]


def test_a_command_updates_and_jumps(remote, thread_config):
    graph = remote("steps")
    graph.invoke({}, thread_config)

    result = graph.invoke(Command(update={"notes": ["jumped"]}, goto="review"), thread_config)

    assert result["notes"][3:] == ["jumped", "review"]


def test_a_breakpoint_stops_and_no_input_continues(remote, thread_config):
    graph = remote("steps")

    stopped = graph.invoke({}, thread_config, interrupt_before=["review"])
    finished = graph.invoke(None, thread_config)

    assert stopped["notes"] == ["plan", "write"]
    assert finished["notes"] == STEPS


def test_the_state_is_a_snapshot_like_that_of_a_local_graph(remote, thread_config):
    graph = remote("human")
    graph.invoke({}, thread_config)

    state = graph.get_state(thread_config)

    assert state.values["notes"] == ["draft"]
    assert state.next == ("approve",)
    assert isinstance(state.interrupts[0], Interrupt)
    assert state.tasks[0].name == "approve"
    assert state.config["configurable"]["thread_id"] == thread_config["configurable"]["thread_id"]


async def test_the_states_of_subgraphs_are_nested(remote, thread_config):
    graph = remote("nested")
    await graph.ainvoke({"topic": "cats", "ask": True}, thread_config)

    state = await graph.aget_state(thread_config, subgraphs=True)

    research = state.tasks[0].state
    assert research.values["outline"] == ["cats"]
    assert research.tasks[0].state.next == ("fetch",)


def test_a_subgraph_state_is_read_by_the_config_of_its_task(remote, thread_config):
    graph = remote("nested")
    graph.invoke({"topic": "cats", "ask": True}, thread_config)
    task_config = graph.get_state(thread_config).tasks[0].state

    state = graph.get_state(task_config)

    assert state.values["outline"] == ["cats"]
    assert state.config["configurable"]["checkpoint_ns"].startswith("research:")


def test_each_state_of_the_history_is_read_by_its_config(remote, thread_config):
    graph = remote("steps")
    graph.invoke({}, thread_config)

    history = list(graph.get_state_history(thread_config))

    assert [state.metadata["step"] for state in history] == [3, 2, 1, 0, -1]
    state_read = graph.get_state(history[2].config)
    assert (state_read.values, state_read.config) == (history[2].values, history[2].config)
    assert history[2].parent_config == history[3].config


def test_history_is_filtered_and_limited(remote, thread_config):
    graph = remote("steps")
    graph.invoke({}, thread_config)
    history = list(graph.get_state_history(thread_config))

    before = list(graph.get_state_history(thread_config, before=history[1].config, limit=2))
    inputs = list(graph.get_state_history(thread_config, filter={"source": "input"}))

    assert [state.metadata["step"] for state in before] == [1, 0]
    assert [state.metadata["step"] for state in inputs] == [-1]


def test_a_run_from_an_older_state_is_a_branch(remote, thread_config):
    graph = remote("steps")
    graph.invoke({}, thread_config)
    planned = next(s for s in graph.get_state_history(thread_config) if s.next == ("write",))

    graph.update_state(planned.config, {"notes": ["otherwise"]}, as_node="write")
    result = graph.invoke(None, thread_config)

    assert result["notes"] == ["plan", "otherwise", "review"]


def test_an_update_returns_its_config(remote, thread_config):
    graph = remote("steps")
    graph.invoke({}, thread_config)

    config = graph.update_state(thread_config, {"notes": ["by hand"]}, as_node="write")

    state = graph.get_state(thread_config)
    assert config["configurable"]["checkpoint_id"] == state.config["configurable"]["checkpoint_id"]
    assert (state.values["notes"][-1], state.next) == ("by hand", ("review",))


def test_the_drawing_is_that_of_the_local_graph(remote):
    graph = remote("nested").get_graph()

    assert list(graph.nodes) == ["__start__", "plan", "research", "publish", "__end__"]
    assert [(edge.source, edge.target) for edge in graph.edges] == [
        ("__start__", "plan"),
        ("plan", "research"),
        ("research", "publish"),
        ("publish", "__end__"),
    ]
    assert "research" in graph.draw_mermaid()


async def test_the_drawing_expands_subgraphs(remote):
    graph = await remote("nested").aget_graph(xray=True)

    assert "research:search:fetch" in graph.nodes


def test_the_graph_gets_the_config_without_internal_keys(remote):
    config = {
        "tags": ["blue"],
        "metadata": {"of": "ann"},
        "recursion_limit": 9,
        "configurable": {"tone": "curt", "__pregel_secret": "x", "function": print},
    }

    seen = remote("context").with_config(config).invoke({})["seen"]

    assert "blue" in seen["tags"]
    assert seen["metadata"]["of"] == "ann"
    assert seen["recursion_limit"] == 9
    assert seen["configurable"]["tone"] == "curt"
    assert "function" not in seen["configurable"]


def test_the_graph_gets_the_context(remote):
    assert remote("context").invoke({}, context={"tone": "curt"})["answer"] == "curt 3"


class Notes(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]


def wrap_remote_graph(node: RemoteGraph, **options: object):
    """Compile a local graph with the remote graph as its node."""
    builder = StateGraph(Notes)
    builder.add_node("remote", node)
    builder.add_edge(START, "remote")
    builder.add_edge("remote", END)
    return builder.compile(**options)


def test_a_remote_node_returns_its_values(remote):
    result = wrap_remote_graph(remote("steps")).invoke({"notes": ["local"]})

    assert result["notes"] == ["local", "local", *STEPS]


def test_a_remote_node_streams_into_its_parent_graph(remote):
    parts = wrap_remote_graph(remote("steps")).stream({}, stream_mode=["custom"], subgraphs=True)

    assert [(len(path), mode, data) for path, mode, data in parts] == [
        (1, "custom", {"at": name}) for name in STEPS
    ]


def test_an_interrupt_of_a_remote_node_stops_its_parent_graph(remote, thread_config):
    graph = wrap_remote_graph(remote("human"), checkpointer=InMemorySaver())

    result = graph.invoke({}, thread_config)

    [question] = result["__interrupt__"]
    assert question.value == {"approve": "send it? (0)"}
    assert graph.get_state(thread_config).next == ("remote",)


def test_a_failure_of_a_remote_node_fails_its_parent_graph(remote):
    builder = StateGraph(dict)
    builder.add_node("remote", remote("steps"))
    builder.add_edge(START, "remote")

    with pytest.raises(RemoteException):
        builder.compile().invoke({"fail": "plan"})


def test_a_remote_node_of_a_subgraph_commands_the_parent_graph(remote):
    subgraph = StateGraph(Notes).add_node("remote", remote("escalating"))
    subgraph.add_edge(START, "remote")
    parent = StateGraph(Notes).add_node("below", subgraph.compile(), destinations=("person",))
    parent.add_node("person", lambda _: {"notes": ["person"]})
    parent.add_edge(START, "below")

    assert parent.compile().invoke({})["notes"] == ["too hard", "person"]


def test_stream_events_v3_has_projections(remote):
    run = remote("chat").stream_events(user_message("words 4"), version="v3")

    with run:
        texts = ["".join(message.text) for message in run.messages]
        output = run.output

    assert texts == ["word0 word1 word2 word3"]
    assert [message["type"] for message in output["messages"]] == ["human", "ai"]


async def test_stream_events_v3_is_interrupted_and_resumed(remote, thread_config):
    graph = remote("human")

    async with await graph.astream_events({}, thread_config, version="v3") as run:
        received = [values async for values in run.values]
        [question] = await run.interrupts()
    async with await graph.astream_events(
        Command(resume="yes"), thread_config, version="v3"
    ) as run:
        output = await run.output()

    assert received[-1]["notes"] == ["draft"]
    assert question["value"] == {"approve": "send it? (0)"}
    assert output["notes"] == ["draft", "answer 0: yes", "sent"]
