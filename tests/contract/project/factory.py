"""Makes another graph for each configuration, with a state of the standard library's kind."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph


class Place(TypedDict):
    name: str


class State(TypedDict):
    notes: Annotated[list[str], operator.add]
    place: Place


def make(config: RunnableConfig):
    names = config.get("configurable", {}).get("nodes") or ["only"]
    builder, before = StateGraph(State), START
    for name in names:
        builder.add_node(name, lambda _, name=name: {"notes": [name]})
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder
