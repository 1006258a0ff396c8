"""Graphs of the kinds that users report."""

import operator
from typing import Annotated

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel
from typing_extensions import TypedDict


class Items(TypedDict, total=False):
    items: Annotated[list[str], operator.add]


def take(state: Items) -> Items:
    return {"items": ["taken"]}


def build_collect() -> StateGraph:
    return StateGraph(Items).add_node(take).add_edge(START, "take").add_edge("take", END)


collect = build_collect().compile()


class Guarded(BaseModel):
    """A state that refuses other types."""

    count: int = 0
    note: str = ""


def count_up(state: Guarded) -> dict:
    return {"count": state.count + 1}


guarded = StateGraph(Guarded).add_node(count_up).add_edge(START, "count_up").compile()


def slip(state: Guarded) -> dict:
    return {"count": "many"} if state.note == "slip" else {"count": state.count + 1}


# `count_up` refuses what `slip` wrote.
slipping = (
    StateGraph(Guarded)
    .add_node(slip)
    .add_node(count_up)
    .add_edge(START, "slip")
    .add_edge("slip", "count_up")
    .compile()
)


def tenant_graph(config: RunnableConfig):
    """A factory that needs a field of its configuration."""
    if not config["configurable"]["tenant"]:
        raise ValueError("no tenant")
    return build_collect().compile()


class Tone(TypedDict, total=False):
    tone: str


def name_tone(state: Items, runtime: Runtime[Tone]) -> Items:
    return {"items": [runtime.context.get("tone", "")]}


toned = (
    StateGraph(Items, context_schema=Tone)
    .add_node(name_tone)
    .add_edge(START, "name_tone")
    .add_edge("name_tone", END)
    .compile()
)
