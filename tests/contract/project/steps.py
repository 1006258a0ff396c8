"""Three nodes in a row; the input says how slow and how well they go."""

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
    """Of the node that is to fail."""
    seen: dict


def step(name: str):
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
    builder.add_node(name, step(name))
builder.add_edge(START, "plan")
builder.add_edge("plan", "write")
builder.add_edge("write", "review")
builder.add_edge("review", END)
graph = builder.compile()
