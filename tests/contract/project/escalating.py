"""Made to be part of another graph: its last word is a command to the one around it."""

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


def give_up(state: State) -> Command:
    return Command(graph=Command.PARENT, update={"notes": ["too hard"]}, goto="person")


builder = StateGraph(State)
builder.add_node("look", look)
builder.add_node("give_up", give_up)
builder.add_edge(START, "look")
builder.add_edge("look", "give_up")
graph = builder.compile()
