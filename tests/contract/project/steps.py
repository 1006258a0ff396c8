"""Three nodes in sequence; the input sets their duration and which of them fails."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    count: int
    sleep: float
    fail: str
    """The name of the node that fails."""
    seen: dict


def build_node(name: str):
    async def node(state: State, config: RunnableConfig) -> State:
        get_stream_writer()({"at": name})
        await asyncio.sleep(state.get("sleep", 0))
        if state.get("fail") == name:
            raise ValueError("no such city")
        configurable = config["configurable"]
        seen = {key: value for key, value in configurable.items() if isinstance(value, str)}
        return {"notes": [name], "count": state.get("count", 0) + 1, "seen": seen}

    return node


builder = StateGraph(State)
for name in ("plan", "write", "review"):
    builder.add_node(name, build_node(name))
builder.add_edge(START, "plan")
builder.add_edge("plan", "write")
builder.add_edge("write", "review")
builder.add_edge("review", END)
graph = builder.compile()
