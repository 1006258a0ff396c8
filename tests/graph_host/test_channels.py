"""Channel events of runs (the thread-centric protocol), as a graph host sends them."""

from __future__ import annotations

from pathlib import Path

import pytest

CONTRACT = Path(__file__).parents[1] / "contract" / "project"
FILES = ("chat", "parrot", "toolbox", "nested", "human")


@pytest.fixture
def agent(host):
    files = {f"{name}.py": (CONTRACT / f"{name}.py").read_text() for name in FILES}
    return host(files, graphs={name: f"./{name}.py:graph" for name in ("chat", "nested", "human")})


def channel_kwargs(**kwargs):
    return {"channels": True, **kwargs}


def select_data(events, name):
    return [data for event, data in events if event == name]


def test_all_channels_have_events_without_changes_to_the_graph(agent):
    graph_input = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}

    events, end = agent.run("chat", channel_kwargs(input=graph_input))
    names = {name for name, _ in events}

    assert end["status"] == "success"
    assert end["closing"] == []
    assert {"~values", "~messages:agent", "~updates", "~tasks", "~checkpoints"} <= names
    tools = [data for name, data in events if name.split("|")[0] == "~tools"]
    assert [data["event"] for data in tools] == ["tool-started", "tool-finished"]
    assert [data["step"] for data in select_data(events, "~checkpoints")] == [-1, 0, 1, 2, 3]
    kinds = [name for name, _ in events if name in ("~values", "~checkpoints")]
    assert kinds == ["~checkpoints", *["~checkpoints", "~values"] * 4]
    assert set(select_data(events, "~checkpoints")[1]) == {"id", "parent_id", "step", "source"}


def test_the_events_of_a_message_share_its_id(agent):
    events, _ = agent.run(
        "chat", channel_kwargs(input={"messages": [{"role": "user", "content": "hi"}]})
    )
    message_events = select_data(events, "~messages:agent")

    assert [data["event"] for data in message_events] == [
        "message-start",
        "content-block-start",
        *["content-block-delta"] * 3,
        "content-block-finish",
        "message-finish",
    ]
    assert len({data["message_id"] for data in message_events}) == 1
    assert message_events[0]["role"] == "ai"
    assert message_events[0]["metadata"]["langgraph_node"] == "agent"
    assert "".join(data["delta"]["text"] for data in message_events[2:5]) == "You wrote: hi"
    assert message_events[5]["content"]["text"] == "You wrote: hi"


def test_events_of_subgraphs_carry_their_namespace(agent):
    events, _ = agent.run("nested", channel_kwargs(input={"topic": "keels"}))
    lifecycle_names = [name for name, data in events if name.startswith("~lifecycle|")]
    lifecycle_events = [data for name, data in events if name.startswith("~lifecycle|")]

    assert [data["event"] for data in lifecycle_events] == [
        "started",
        "started",
        "completed",
        "completed",
    ]
    assert [data.get("graph_name") for data in lifecycle_events[:2]] == ["research", "search"]
    assert lifecycle_names[0].split("|")[1].startswith("research:")
    assert lifecycle_names[1].startswith(lifecycle_names[0] + "|search:")
    customs = [name for name, _ in events if name.startswith("~custom")]
    assert [len(name.split("|")) for name in customs] == [2, 3]


def test_interrupts_are_sent_with_the_end_of_the_run(agent):
    events, end = agent.run("human", channel_kwargs(input={"notes": [], "ask": 2}))
    closing = [(name, data) for name, data in end["closing"]]

    assert not [name for name, _ in events if name.startswith("~input")]
    assert [name for name, _ in closing] == ["~input.requested"] * 2
    assert b'"payload":{"approve":"send it? (0)"}' in closing[0][1]
    assert b'"value":{"approve":"send it? (0)"}' in closing[0][1]


def test_an_interrupt_of_a_subgraph_is_sent_once_from_the_deepest_graph(agent):
    _, end = agent.run("nested", channel_kwargs(input={"topic": "keels", "ask": True}))
    [(name, _)] = end["closing"]

    assert [segment.split(":")[0] for segment in name.split("|")] == [
        "~input.requested",
        "research",
        "search",
    ]


RETURNS_MESSAGES = """
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import MessagesState, StateGraph

model = FakeMessagesListChatModel(responses=[AIMessage("from a model", id="m")])


async def written(state):
    return {"messages": [AIMessage("no model", id="w"), HumanMessage("nor a user", id="h")]}


async def called(state):
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_node(written)
    .add_node(called)
    .add_edge("__start__", "written")
    .add_edge("written", "called")
)
"""


def test_messages_without_a_model_call_have_no_message_stream(host):
    agent = host({"agent.py": RETURNS_MESSAGES}, graphs={"agent": "./agent.py:graph"})

    events, end = agent.run("agent", channel_kwargs(input={"messages": []}))

    assert end["status"] == "success"
    assert {name for name, _ in events if name.startswith("~messages")} == {"~messages:called"}
    message_events = select_data(events, "~messages:called")
    assert message_events[0]["event"] == "message-start"
    assert {data["message_id"] for data in message_events} == {message_events[0]["message_id"]}
    values = select_data(events, "~values")[-1]["messages"]
    assert [message["id"] for message in values] == ["w", "h", "m"]
