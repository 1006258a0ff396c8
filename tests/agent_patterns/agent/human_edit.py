"""Review and edit: the reviewer's text replaces the generated text."""

from __future__ import annotations

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    summary: str
    published: str


def generate(_: State) -> State:
    return {"summary": "The cat sat on teh mat."}


def review(state: State) -> State:
    edited = interrupt({"task": "Correct the summary.", "summary": state["summary"]})
    return {"summary": edited["summary"]}


def publish(state: State) -> State:
    return {"published": state["summary"].upper()}


builder = StateGraph(State).add_sequence([generate, review, publish])
builder.add_edge(START, "generate")
graph = builder.compile()
