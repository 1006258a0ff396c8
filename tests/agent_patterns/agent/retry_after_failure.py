"""Durable execution: after a failure the graph resumes at the failed step."""

from __future__ import annotations

import operator
from typing import Annotated
from uuid import uuid4

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    press_broken: bool
    log: Annotated[list[str], operator.add]


def write(_: State) -> State:
    return {"log": [f"written {uuid4()}"]}


def press(state: State) -> State:
    if state.get("press_broken"):
        raise RuntimeError("the press is broken")
    return {"log": ["printed"]}


builder = StateGraph(State).add_sequence([write, press])
builder.add_edge(START, "write")
graph = builder.compile()
