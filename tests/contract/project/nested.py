"""Graphs two levels deep, each with state of its own; the innermost may ask (`ask: true`).

plan → research(outline → search(fetch → rank) → digest) → publish
"""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Search(TypedDict, total=False):
    topic: str
    ask: bool
    pages: Annotated[list[str], operator.add]
    hits: list[str]


class Research(TypedDict, total=False):
    topic: str
    ask: bool
    outline: list[str]
    hits: list[str]
    report: str


class State(TypedDict, total=False):
    topic: str
    ask: bool
    report: str
    log: Annotated[list[str], operator.add]


def fetch(state: Search) -> Search:
    get_stream_writer()({"fetching": state["topic"]})
    answer = interrupt({"may I fetch": state["topic"]}) if state.get("ask") else "yes"
    return {"pages": [f"{state['topic']} 1 ({answer})", f"{state['topic']} 2 ({answer})"]}


def rank(state: Search) -> Search:
    return {"hits": sorted(state["pages"], reverse=True)}


def outline(state: Research) -> Research:
    get_stream_writer()({"outlining": state["topic"]})
    return {"outline": [state["topic"]]}


def digest(state: Research) -> Research:
    return {"report": " & ".join(state["hits"])}


def plan(state: State) -> State:
    return {"log": ["planned"]}


def publish(state: State) -> State:
    return {"log": ["published"]}


def chain(schema: type, **nodes: object) -> StateGraph:
    """The nodes one after another."""
    builder, before = StateGraph(schema), START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder


search = chain(Search, fetch=fetch, rank=rank).compile()
research = chain(Research, outline=outline, search=search, digest=digest).compile()
graph = chain(State, plan=plan, research=research, publish=publish).compile()
