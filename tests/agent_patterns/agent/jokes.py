"""Time travel: earlier states can be read, replayed and changed."""

from __future__ import annotations

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    topic: str
    joke: str


def generate_topic(_: State) -> State:
    return {"topic": "socks in the dryer"}


def write_joke(state: State) -> State:
    return {"joke": f"Why did the {state['topic']} cross the road?"}


builder = StateGraph(State).add_sequence([generate_topic, write_joke])
builder.add_edge(START, "generate_topic")
graph = builder.compile()
