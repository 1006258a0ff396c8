"""A subgraph with memory of its own (`checkpointer=True`) goes on where its thread left it."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class Inner(TypedDict, total=False):
    word: str
    heard: Annotated[list[str], operator.add]


class Outer(TypedDict, total=False):
    word: str
    said: str


def listen(state: Inner) -> Inner:
    return {"heard": [state["word"]]}


inner = StateGraph(Inner).add_sequence([listen])
inner.add_edge(START, "listen")
inner_graph = inner.compile(checkpointer=True)


def tell(state: Outer) -> Outer:
    return {"said": " ".join(inner_graph.invoke({"word": state["word"]})["heard"])}


builder = StateGraph(Outer).add_sequence([tell])
builder.add_edge(START, "tell")
graph = builder.compile()
