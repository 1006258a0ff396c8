"""Three nodes in sequence; the input names the slow one, and the nodes before it finish at once."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

NAMES = ["plan", "write", "review"]


class State(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    sleep: float
    slow: str


def build_node(name: str) -> Any:
    async def node(state: State) -> State:
        if state.get("slow", name) == name:
            await asyncio.sleep(state.get("sleep") or 0)
        return {"notes": [name]}

    return node


builder = StateGraph(State)
for before, name in zip([START, *NAMES], NAMES, strict=False):
    builder.add_node(name, build_node(name))
    builder.add_edge(before, name)
builder.add_edge(NAMES[-1], END)
graph = builder.compile()
