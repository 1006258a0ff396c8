"""Validation: one node repeats its question until the answer is valid."""

from __future__ import annotations

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    name: str
    age: int


def ask(_: State) -> State:
    name = interrupt("What is your name?")
    question = "What is your age?"
    while not isinstance(age := interrupt(question), int) or age < 0:
        question = f"{age!r} is not an age. What is your age?"
    return {"name": name, "age": age}


builder = StateGraph(State).add_sequence([ask])
builder.add_edge(START, "ask")
graph = builder.compile()
