"""Parallel interrupts: two nodes interrupt in one step, and each gets its own answer."""

from __future__ import annotations

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    title: str
    body: str


def title(state: State) -> State:
    return {"title": interrupt({"revise": state["title"]})}


def body(state: State) -> State:
    return {"body": interrupt({"revise": state["body"]})}


builder = StateGraph(State)
builder.add_node("revise title", title)
builder.add_node("revise body", body)
builder.add_edge(START, "revise title")
builder.add_edge(START, "revise body")
graph = builder.compile()
