"""Two levels of subgraphs with their own state: each parent translates its state for its child."""

from __future__ import annotations

from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class Grandchild(TypedDict):
    my_grandchild_key: str


class Child(TypedDict):
    my_child_key: str


class Parent(TypedDict):
    my_key: str


def grandchild_1(state: Grandchild) -> Grandchild:
    get_stream_writer()({"received": state["my_grandchild_key"]})
    return {"my_grandchild_key": state["my_grandchild_key"] + ", how are you"}


grandchild = StateGraph(Grandchild).add_sequence([grandchild_1])
grandchild.add_edge(START, "grandchild_1")
grandchild_graph = grandchild.compile()


def call_grandchild(state: Child) -> Child:
    answer = grandchild_graph.invoke({"my_grandchild_key": state["my_child_key"]})
    return {"my_child_key": answer["my_grandchild_key"] + " today?"}


child = StateGraph(Child).add_sequence([call_grandchild])
child.add_edge(START, "call_grandchild")
child_graph = child.compile()


def parent_1(state: Parent) -> Parent:
    return {"my_key": "hi " + state["my_key"]}


def call_child(state: Parent) -> Parent:
    return {"my_key": child_graph.invoke({"my_child_key": state["my_key"]})["my_child_key"]}


def parent_2(state: Parent) -> Parent:
    return {"my_key": state["my_key"] + " bye!"}


builder = StateGraph(Parent).add_sequence([parent_1, call_child, parent_2])
builder.add_edge(START, "parent_1")
graph = builder.compile()
