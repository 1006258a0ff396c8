"""The events of a run, by stream mode."""

from __future__ import annotations

from uuid import uuid4

import pytest

CODE = """
import operator
from typing import Annotated
from typing_extensions import TypedDict
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

class Notes(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]

def plan(state):
    get_stream_writer()({"at": "plan"})
    return {"notes": ["planned"]}

def write(state):
    return {"notes": ["written"]}

flow = StateGraph(Notes)
flow.add_node(plan)
flow.add_node(write)
flow.add_edge(START, "plan")
flow.add_edge("plan", "write")

inner = StateGraph(Notes)
inner.add_node("search", lambda state: {"notes": [interrupt({"ok": "?"})]})
inner.add_edge(START, "search")
outer = StateGraph(Notes)
outer.add_node("research", inner.compile())
outer.add_edge(START, "research")

class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]

async def talk(state):
    model = GenericFakeChatModel(messages=iter([AIMessage(content="so be it", id="ai-1")]))
    answer = await model.ainvoke(state["messages"])
    return {"messages": [answer, ToolMessage("done", tool_call_id="c", id="tool-1")]}

chat = StateGraph(Chat)
chat.add_node(talk)
chat.add_edge(START, "talk")
"""
GRAPHS = {"flow": "./a.py:flow", "outer": "./a.py:outer", "chat": "./a.py:chat"}
HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def agent(host):
    return host({"a.py": CODE}, graphs=GRAPHS)


def test_values_updates_and_custom_events_keep_their_order(agent):
    kwargs = {"input": {"notes": []}, "stream_mode": ["values", "updates", "custom"]}

    events, end = agent.run("flow", kwargs)

    assert events == [
        ("values", {"notes": []}),
        ("custom", {"at": "plan"}),
        ("updates", {"plan": {"notes": ["planned"]}}),
        ("values", {"notes": ["planned"]}),
        ("updates", {"write": {"notes": ["written"]}}),
        ("values", {"notes": ["planned", "written"]}),
    ]
    assert (end["status"], end["values"], end["unfinished"]) == (
        "success",
        b'{"notes":["planned","written"]}',
        False,
    )


def test_tasks_checkpoints_and_debug_events_describe_each_step(agent):
    kwargs = {"input": {"notes": []}, "stream_mode": ["tasks", "checkpoints", "debug"]}
    thread_id = str(uuid4())

    events, _ = agent.run("flow", kwargs, thread_id=thread_id)

    started, ended = [data for name, data in events if name == "tasks"][:2]
    assert (started["name"], started["input"], started["triggers"]) == (
        "plan",
        {"notes": []},
        ["branch:to:plan"],
    )
    assert (ended["id"], ended["result"], ended["error"]) == (
        started["id"],
        {"notes": ["planned"]},
        None,
    )
    steps = [data for name, data in events if name == "checkpoints"]
    assert [step["metadata"]["step"] for step in steps] == [-1, 0, 1, 2]
    assert [step["next"] for step in steps] == [["__start__"], ["plan"], ["write"], []]
    debug = [data for name, data in events if name == "debug"]
    assert {event["type"] for event in debug} == {"checkpoint", "task", "task_result"}
    last = [event["payload"] for event in debug if event["type"] == "checkpoint"][-1]
    assert last["checkpoint"]["thread_id"] == thread_id
    assert (
        last["parent_checkpoint"]["checkpoint_id"]
        == steps[-2]["config"]["configurable"]["checkpoint_id"]
    )


def test_streamed_messages_send_partial_events_and_whole_messages_one_complete_event(agent):
    events, _ = agent.run("chat", {"input": HI, "stream_mode": "messages"})

    assert [name for name, _ in events] == [
        "messages/metadata",
        *["messages/partial"] * 5,
        "messages/metadata",
        "messages/complete",
    ]
    [key] = events[0][1]
    assert events[0][1][key]["metadata"]["langgraph_node"] == "talk"
    partial = [data[0] for name, data in events if name == "messages/partial"]
    assert [m["content"] for m in partial] == ["so", "so ", "so be", "so be ", "so be it"]
    assert {(m["type"], m["id"]) for m in partial} == {("ai", key)}
    assert "tool_call_chunks" not in partial[0]
    assert events[-1][1][0] | {"artifact": None} == events[-1][1][0]
    assert (events[-1][1][0]["type"], events[-1][1][0]["id"]) == ("tool", "tool-1")


def test_messages_tuple_sends_deltas_and_takes_precedence_over_messages(agent):
    events, _ = agent.run("chat", {"input": HI, "stream_mode": ["messages", "messages-tuple"]})

    assert [name for name, _ in events] == ["messages"] * 6
    chunks = [data for _, data in events]
    assert [message["content"] for message, _ in chunks] == ["so", " ", "be", " ", "it", "done"]
    assert [message["type"] for message, _ in chunks] == ["AIMessageChunk"] * 5 + ["tool"]
    assert {metadata["langgraph_node"] for _, metadata in chunks} == {"talk"}


def test_langchain_events_have_the_run_as_their_root(agent):
    run_id = str(uuid4())

    events, end = agent.run(
        "flow", {"input": {"notes": []}, "stream_mode": ["events", "values"]}, run_id=run_id
    )

    roots = [data for name, data in events if name == "events" and data["run_id"] == run_id]
    assert (roots[0]["event"], roots[-1]["event"]) == ("on_chain_start", "on_chain_end")
    assert [data for name, data in events if name == "values"][-1] == {
        "notes": ["planned", "written"]
    }
    assert end["status"] == "success"


def test_event_names_of_subgraphs_have_their_namespace(agent):
    kwargs = {"input": {"notes": []}, "stream_mode": ["values", "updates"], "subgraphs": True}

    events, end = agent.run("outer", kwargs)

    subgraph_names = [name for name, _ in events if "|" in name]
    assert {name.partition(":")[0] for name in subgraph_names} == {
        "values|research",
        "updates|research",
    }
    [question] = next(data for name, data in events if name == "updates")["__interrupt__"]
    assert question == {"value": {"ok": "?"}, "id": question["id"], "response_schema": None}
    assert end["unfinished"]
    assert events[-1][1]["__interrupt__"] == [question]


def test_a_breakpoint_is_an_empty_interrupt(agent):
    kwargs = {
        "input": {"notes": []},
        "stream_mode": ["updates", "values"],
        "interrupt_before": ["write"],
    }

    events, end = agent.run("flow", kwargs)

    assert ("updates", {"__interrupt__": []}) in events
    assert (end["status"], end["interrupts"], end["asks"], end["unfinished"]) == (
        "success",
        b"{}",
        None,
        True,
    )


def test_a_command_to_the_parent_graph_is_an_event(host):
    code = """
from langgraph.graph import START, StateGraph
from langgraph.types import Command

def escalate(state):
    return Command(graph=Command.PARENT, update={"notes": ["too hard"]}, goto="person")

builder = StateGraph(dict)
builder.add_node(escalate)
builder.add_edge(START, "escalate")
graph = builder.compile()
"""

    events, end = host({"b.py": code}, graphs={"one": "./b.py:graph"}).run(
        "one", {"input": {"a": 1}}
    )

    command = {"graph": "__parent__", "update": {"notes": ["too hard"]}, "resume": None}
    assert events[-1] == ("command", {**command, "goto": "person"})
    assert end["status"] == "success"
