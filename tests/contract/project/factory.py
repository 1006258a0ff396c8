"""Builds a graph for each configuration; the state is a TypedDict of the standard library."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph


class Location(TypedDict):
    name: str


class State(TypedDict):
    notes: Annotated[list[str], operator.add]
    place: Location


def build_graph(config: RunnableConfig):
    names = config.get("configurable", {}).get("nodes") or ["only"]
    builder, before = StateGraph(State), START
    for name in names:
        builder.add_node(name, lambda _, name=name: {"notes": [name]})
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder
