"""Map and reduce: one branch for each subject; their number is known only at run time."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    topic: str
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


class Subject(TypedDict):
    subject: str


def generate_topics(state: State) -> State:
    return {"subjects": [f"{kind} {state['topic']}" for kind in ("shy", "proud", "sleepy")]}


def generate_joke(state: Subject) -> State:
    return {"jokes": [f"a {state['subject']} walks into a bar"]}


def best_joke(state: State) -> State:
    return {"best": max(state["jokes"], key=len)}


def continue_to_jokes(state: State) -> list[Send]:
    return [Send("generate_joke", {"subject": subject}) for subject in state["subjects"]]


builder = StateGraph(State)
builder.add_node(generate_topics)
builder.add_node(generate_joke)
builder.add_node(best_joke)
builder.add_edge(START, "generate_topics")
builder.add_conditional_edges("generate_topics", continue_to_jokes, ["generate_joke"])
builder.add_edge("generate_joke", "best_joke")
builder.add_edge("best_joke", END)
graph = builder.compile()
