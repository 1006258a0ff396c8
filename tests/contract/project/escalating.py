"""A subgraph whose last node returns a command for its parent graph."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]


def look(state: State) -> State:
    return {"notes": ["looked"]}


def escalate(state: State) -> Command:
    return Command(graph=Command.PARENT, update={"notes": ["too hard"]}, goto="person")


builder = StateGraph(State)
builder.add_node("look", look)
builder.add_node("escalate", escalate)
builder.add_edge(START, "look")
builder.add_edge("look", "escalate")
graph = builder.compile()
