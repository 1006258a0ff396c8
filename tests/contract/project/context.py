"""Reports its static context and its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict


@dataclass
class Context:
    tone: str = "friendly"
    length: int = 3


class State(TypedDict, total=False):
    question: str
    answer: str
    seen: dict


def node(state: State, config: RunnableConfig, runtime: Runtime[Context]) -> State:
    configurable = {
        key: value
        for key, value in config["configurable"].items()
        if not key.startswith("__") and isinstance(value, str | int | float | bool | list | None)
    }
    return {
        "answer": f"{runtime.context.tone} {runtime.context.length}",
        "seen": {
            "configurable": configurable,
            "metadata": dict(config["metadata"]),
            "tags": list(config.get("tags") or []),
            "recursion_limit": config.get("recursion_limit"),
        },
    }


builder = StateGraph(State, context_schema=Context)
builder.add_node("node", node)
builder.add_edge(START, "node")
builder.add_edge("node", END)
graph = builder.compile()
