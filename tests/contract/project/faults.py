"""Fails in the way that `kind` names."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class OutOfPaper(Exception):
    """An exception class of the agent's author."""


class State(TypedDict, total=False):
    kind: str
    text: str
    counted: Annotated[int, operator.add]


def node(state: State) -> State:
    match state.get("kind"):
        case "value":
            raise ValueError(state.get("text", "no such city"))
        case "key":
            raise KeyError(state.get("text", "city"))
        case "own":
            raise OutOfPaper(state.get("text", "tray 2"))
        case "zero":
            return {"counted": 1 // 0}
        case "shape":
            return ["not", "an", "update"]
        case "reducer":
            return {"counted": "one"}
        case "unserialisable":
            return {"text": lambda: None}
        case "exit":
            raise SystemExit(3)
    return {"counted": 1}


builder = StateGraph(State)
builder.add_node("node", node)
builder.add_edge(START, "node")
builder.add_edge("node", END)
graph = builder.compile()
