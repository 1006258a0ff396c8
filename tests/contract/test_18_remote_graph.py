"""`RemoteGraph` of the public library: a deployed graph used as if it were a local one."""

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

from tests.response_deadline import with_deadline

STEPS = ["plan", "write", "review"]


@pytest.fixture
async def remote(live, agent_url):
    """A graph of the agent by its name."""
    async with with_deadline(get_client(url=agent_url, api_key=live.api_key)) as waiting:
        with with_deadline(get_sync_client(url=agent_url, api_key=live.api_key)) as client:
            yield lambda name: RemoteGraph(name, client=waiting, sync_client=client)


@pytest.fixture
def thread() -> dict:
    """The configuration of a thread that the first run makes."""
    return {"configurable": {"thread_id": str(uuid4())}}


def said(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


def test_invoke_answers_the_last_values(remote):
    assert remote("steps").invoke({"notes": ["asked"]})["notes"] == ["asked", *STEPS]


async def test_ainvoke_answers_the_last_values(remote):
    answer = await remote("steps").ainvoke({"notes": ["asked"]})

    assert answer["notes"] == ["asked", *STEPS]


def test_a_thread_is_made_by_the_first_run_and_kept(remote, thread):
    remote("steps").invoke({}, thread)

    assert remote("steps").invoke({}, thread)["count"] == 6


def test_an_assistant_may_be_named_by_its_id(remote, client):
    assistant = client.assistants.create("context", context={"tone": "curt"})

    assert remote(assistant["assistant_id"]).invoke({})["answer"] == "curt 3"


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("values", {"notes": ["asked"]}),
        ("custom", {"at": "plan"}),
    ],
)
def test_a_single_mode_streams_bare_data(remote, mode, first):
    parts = list(remote("steps").stream({"notes": ["asked"]}, stream_mode=mode))

    assert parts[0] == first


def test_updates_stream_node_by_node(remote):
    parts = remote("steps").stream({}, stream_mode="updates")

    assert [list(part) for part in parts] == [["plan"], ["write"], ["review"]]


def test_messages_stream_in_pieces(remote):
    parts = list(remote("chat").stream(said("words 4"), stream_mode="messages"))

    assert "".join(piece["content"] for piece, _ in parts) == "word0 word1 word2 word3"
    assert {metadata["langgraph_node"] for _, metadata in parts} == {"agent"}


@pytest.mark.parametrize("mode", ["tasks", "checkpoints", "debug"])
def test_modes_of_the_engine_stream_as_well(remote, mode, thread):
    parts = list(remote("steps").stream({}, thread, stream_mode=mode))

    assert len(parts) == {"tasks": 6, "checkpoints": 5, "debug": 11}[mode]


def test_several_modes_stream_with_their_names(remote):
    parts = remote("steps").stream({}, stream_mode=["values", "custom"])

    assert {part.event for part in parts} == {"values", "custom"}


async def test_graphs_below_stream_with_their_path(remote):
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


def test_the_second_version_of_stream_has_typed_parts(remote):
    parts = list(remote("human").stream({}, stream_mode="values", version="v2"))

    assert [part["type"] for part in parts] == ["values", "values"]
    [question] = parts[-1]["interrupts"]
    assert question.value == {"approve": "send it? (0)"}
    assert "__interrupt__" not in parts[-1]["data"]


def test_a_failure_is_raised_with_its_class_and_message(remote):
    with pytest.raises(RemoteException) as raised:
        remote("steps").invoke({"fail": "write"})

    assert raised.value.args[0] == {"error": "ValueError", "message": "no such city"}


def test_a_question_is_in_the_answer_and_a_command_resumes(remote, thread):
    graph = remote("human")

    asked = graph.invoke({}, thread)
    answered = graph.invoke(Command(resume="yes"), thread)

    assert asked["__interrupt__"][0]["value"] == {"approve": "send it? (0)"}
    assert answered["notes"] == ["draft", "answer 0: yes", "sent"]


async def test_several_questions_are_answered_by_id(remote, thread):
    graph = remote("human")
    await graph.ainvoke({"ask": 2}, thread)

    asked = (await graph.aget_state(thread)).interrupts
    answers = {question.id: question.value["approve"] for question in asked}
    answered = await graph.ainvoke(Command(resume=answers), thread)

    assert sorted(answered["notes"][1:3]) == [
        "answer 0: send it? (0)",
        "answer 1: send it? (1)",
    ]


def test_a_command_updates_and_jumps(remote, thread):
    graph = remote("steps")
    graph.invoke({}, thread)

    answer = graph.invoke(Command(update={"notes": ["jumped"]}, goto="review"), thread)

    assert answer["notes"][3:] == ["jumped", "review"]


def test_a_breakpoint_stops_and_none_goes_on(remote, thread):
    graph = remote("steps")

    stopped = graph.invoke({}, thread, interrupt_before=["review"])
    finished = graph.invoke(None, thread)

    assert stopped["notes"] == ["plan", "write"]
    assert finished["notes"] == STEPS


def test_the_state_is_a_snapshot_as_of_a_local_graph(remote, thread):
    graph = remote("human")
    graph.invoke({}, thread)

    state = graph.get_state(thread)

    assert state.values["notes"] == ["draft"]
    assert state.next == ("approve",)
    assert isinstance(state.interrupts[0], Interrupt)
    assert state.tasks[0].name == "approve"
    assert state.config["configurable"]["thread_id"] == thread["configurable"]["thread_id"]


async def test_the_state_of_graphs_below_is_nested(remote, thread):
    graph = remote("nested")
    await graph.ainvoke({"topic": "cats", "ask": True}, thread)

    state = await graph.aget_state(thread, subgraphs=True)

    research = state.tasks[0].state
    assert research.values["outline"] == ["cats"]
    assert research.tasks[0].state.next == ("fetch",)


def test_a_graph_below_is_reached_by_the_configuration_that_its_task_names(remote, thread):
    graph = remote("nested")
    graph.invoke({"topic": "cats", "ask": True}, thread)
    below = graph.get_state(thread).tasks[0].state

    state = graph.get_state(below)

    assert state.values["outline"] == ["cats"]
    assert state.config["configurable"]["checkpoint_ns"].startswith("research:")


def test_history_goes_back_and_every_state_can_be_read_again(remote, thread):
    graph = remote("steps")
    graph.invoke({}, thread)

    history = list(graph.get_state_history(thread))

    assert [state.metadata["step"] for state in history] == [3, 2, 1, 0, -1]
    again = graph.get_state(history[2].config)
    assert (again.values, again.config) == (history[2].values, history[2].config)
    assert history[2].parent_config == history[3].config


def test_history_is_filtered_and_cut(remote, thread):
    graph = remote("steps")
    graph.invoke({}, thread)
    history = list(graph.get_state_history(thread))

    before = list(graph.get_state_history(thread, before=history[1].config, limit=2))
    inputs = list(graph.get_state_history(thread, filter={"source": "input"}))

    assert [state.metadata["step"] for state in before] == [1, 0]
    assert [state.metadata["step"] for state in inputs] == [-1]


def test_a_run_from_an_older_state_is_a_branch(remote, thread):
    graph = remote("steps")
    graph.invoke({}, thread)
    planned = next(s for s in graph.get_state_history(thread) if s.next == ("write",))

    graph.update_state(planned.config, {"notes": ["otherwise"]}, as_node="write")
    answer = graph.invoke(None, thread)

    assert answer["notes"] == ["plan", "otherwise", "review"]


def test_an_update_answers_where_it_is(remote, thread):
    graph = remote("steps")
    graph.invoke({}, thread)

    config = graph.update_state(thread, {"notes": ["by hand"]}, as_node="write")

    state = graph.get_state(thread)
    assert config["configurable"]["checkpoint_id"] == state.config["configurable"]["checkpoint_id"]
    assert (state.values["notes"][-1], state.next) == ("by hand", ("review",))


def test_the_drawing_is_the_local_one(remote):
    graph = remote("nested").get_graph()

    assert list(graph.nodes) == ["__start__", "plan", "research", "publish", "__end__"]
    assert [(edge.source, edge.target) for edge in graph.edges] == [
        ("__start__", "plan"),
        ("plan", "research"),
        ("research", "publish"),
        ("publish", "__end__"),
    ]
    assert "research" in graph.draw_mermaid()


async def test_the_drawing_opens_graphs_below(remote):
    graph = await remote("nested").aget_graph(xray=True)

    assert "research:search:fetch" in graph.nodes


def test_configuration_reaches_the_graph_without_what_is_internal(remote):
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


def test_context_reaches_the_graph(remote):
    assert remote("context").invoke({}, context={"tone": "curt"})["answer"] == "curt 3"


class Notes(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]


def around(node: RemoteGraph, **options: object):
    """A local graph with a remote one in it."""
    builder = StateGraph(Notes)
    builder.add_node("remote", node)
    builder.add_edge(START, "remote")
    builder.add_edge("remote", END)
    return builder.compile(**options)


def test_as_a_node_it_answers_its_values(remote):
    answer = around(remote("steps")).invoke({"notes": ["local"]})

    assert answer["notes"] == ["local", "local", *STEPS]


def test_as_a_node_it_streams_into_the_graph_around_it(remote):
    parts = around(remote("steps")).stream({}, stream_mode=["custom"], subgraphs=True)

    assert [(len(path), mode, data) for path, mode, data in parts] == [
        (1, "custom", {"at": name}) for name in STEPS
    ]


def test_as_a_node_its_question_stops_the_graph_around_it(remote, thread):
    graph = around(remote("human"), checkpointer=InMemorySaver())

    answer = graph.invoke({}, thread)

    [question] = answer["__interrupt__"]
    assert question.value == {"approve": "send it? (0)"}
    assert graph.get_state(thread).next == ("remote",)


def test_as_a_node_its_failure_is_the_failure_of_the_graph_around_it(remote):
    builder = StateGraph(dict)
    builder.add_node("remote", remote("steps"))
    builder.add_edge(START, "remote")

    with pytest.raises(RemoteException):
        builder.compile().invoke({"fail": "plan"})


def test_in_a_graph_below_it_may_command_the_graph_above(remote):
    below = StateGraph(Notes).add_node("remote", remote("escalating"))
    below.add_edge(START, "remote")
    above = StateGraph(Notes).add_node("below", below.compile(), destinations=("person",))
    above.add_node("person", lambda _: {"notes": ["person"]})
    above.add_edge(START, "below")

    assert above.compile().invoke({})["notes"] == ["too hard", "person"]


def test_the_third_version_of_stream_events_has_projections(remote):
    run = remote("chat").stream_events(said("words 4"), version="v3")

    with run:
        texts = ["".join(message.text) for message in run.messages]
        output = run.output

    assert texts == ["word0 word1 word2 word3"]
    assert [message["type"] for message in output["messages"]] == ["human", "ai"]


async def test_the_third_version_asks_and_is_answered(remote, thread):
    graph = remote("human")

    async with await graph.astream_events({}, thread, version="v3") as run:
        seen = [values async for values in run.values]
        [question] = await run.interrupts()
    async with await graph.astream_events(Command(resume="yes"), thread, version="v3") as run:
        output = await run.output()

    assert seen[-1]["notes"] == ["draft"]
    assert question["value"] == {"approve": "send it? (0)"}
    assert output["notes"] == ["draft", "answer 0: yes", "sent"]
