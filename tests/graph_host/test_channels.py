"""Runs as the thread-centric protocol shows them, from the host's side."""

from __future__ import annotations

from pathlib import Path

import pytest

CONTRACT = Path(__file__).parents[1] / "contract" / "project"
FILES = ("chat", "parrot", "toolbox", "nested", "human")


@pytest.fixture
def agent(host):
    files = {f"{name}.py": (CONTRACT / f"{name}.py").read_text() for name in FILES}
    return host(files, graphs={name: f"./{name}.py:graph" for name in ("chat", "nested", "human")})


def asking(**asked):
    return {"channels": True, **asked}


def of(events, name):
    return [data for event, data in events if event == name]


def test_all_channels_speak_without_anything_compiled_into_the_graph(agent):
    say = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}

    events, end = agent.run("chat", asking(input=say))
    names = {name for name, _ in events}

    assert end["status"] == "success"
    assert end["closing"] == []
    assert {"~values", "~messages:agent", "~updates", "~tasks", "~checkpoints"} <= names
    tools = [data for name, data in events if name.split("|")[0] == "~tools"]
    assert [data["event"] for data in tools] == ["tool-started", "tool-finished"]
    assert [data["step"] for data in of(events, "~checkpoints")] == [-1, 0, 1, 2, 3]
    kinds = [name for name, _ in events if name in ("~values", "~checkpoints")]
    assert kinds == ["~checkpoints", *["~checkpoints", "~values"] * 4]
    assert set(of(events, "~checkpoints")[1]) == {"id", "parent_id", "step", "source"}


def test_a_message_grows_block_by_block_under_its_id(agent):
    events, _ = agent.run("chat", asking(input={"messages": [{"role": "user", "content": "hi"}]}))
    said = of(events, "~messages:agent")

    assert [data["event"] for data in said] == [
        "message-start",
        "content-block-start",
        *["content-block-delta"] * 3,
        "content-block-finish",
        "message-finish",
    ]
    assert len({data["message_id"] for data in said}) == 1
    assert said[0]["role"] == "ai"
    assert said[0]["metadata"]["langgraph_node"] == "agent"
    assert "".join(data["delta"]["text"] for data in said[2:5]) == "You said: hi"
    assert said[5]["content"]["text"] == "You said: hi"


def test_children_speak_in_their_own_namespace(agent):
    events, _ = agent.run("nested", asking(input={"topic": "keels"}))
    born = [name for name, data in events if name.startswith("~lifecycle|")]
    told = [data for name, data in events if name.startswith("~lifecycle|")]

    assert [data["event"] for data in told] == ["started", "started", "completed", "completed"]
    assert [data.get("graph_name") for data in told[:2]] == ["research", "search"]
    assert born[0].split("|")[1].startswith("research:")
    assert born[1].startswith(born[0] + "|search:")
    customs = [name for name, _ in events if name.startswith("~custom")]
    assert [len(name.split("|")) for name in customs] == [2, 3]


def test_questions_are_told_with_the_end(agent):
    events, end = agent.run("human", asking(input={"notes": [], "ask": 2}))
    closing = [(name, data) for name, data in end["closing"]]

    assert not [name for name, _ in events if name.startswith("~input")]
    assert [name for name, _ in closing] == ["~input.requested"] * 2
    assert b'"payload":{"approve":"send it? (0)"}' in closing[0][1]
    assert b'"value":{"approve":"send it? (0)"}' in closing[0][1]


def test_a_question_of_a_subgraph_is_told_once_by_the_deepest(agent):
    _, end = agent.run("nested", asking(input={"topic": "keels", "ask": True}))
    [(name, _)] = end["closing"]

    assert [segment.split(":")[0] for segment in name.split("|")] == [
        "~input.requested",
        "research",
        "search",
    ]
