"""Two parallel nodes and one that joins them; a reducer sums numbers and rejects other values."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    names: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    text: str


def left(state: State) -> State:
    return {"names": ["left"], "total": 1}


def right(state: State) -> State:
    return {"names": ["right"], "total": 10}


def join(state: State) -> State:
    return {"names": ["join"]}


builder = StateGraph(State)
for node in (left, right, join):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "left")
builder.add_edge(START, "right")
builder.add_edge(["left", "right"], "join")
builder.add_edge("join", END)
graph = builder.compile()
