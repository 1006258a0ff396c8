"""A subgraph with its own memory (`checkpointer=True`) continues from its thread's last state."""

from __future__ import annotations

import operator
from typing import Annotated

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class Inner(TypedDict, total=False):
    word: str
    words: Annotated[list[str], operator.add]


class Outer(TypedDict, total=False):
    word: str
    transcript: str


def append_word(state: Inner) -> Inner:
    return {"words": [state["word"]]}


inner = StateGraph(Inner).add_sequence([append_word])
inner.add_edge(START, "append_word")
inner_graph = inner.compile(checkpointer=True)


def call_inner_graph(state: Outer) -> Outer:
    return {"transcript": " ".join(inner_graph.invoke({"word": state["word"]})["words"])}


builder = StateGraph(Outer).add_sequence([call_inner_graph])
builder.add_edge(START, "call_inner_graph")
graph = builder.compile()
