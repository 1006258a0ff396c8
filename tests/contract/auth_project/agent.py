"""Graphs that report the authenticated user of the run."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from langgraph_sdk.runtime import ServerRuntime
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    sleep: float
    ask: str
    seen: dict


async def report_user(state: State, config: RunnableConfig, runtime: Runtime) -> State:
    await asyncio.sleep(state.get("sleep", 0))
    if state.get("ask"):
        interrupt(state["ask"])
    configurable = config["configurable"]
    user = configurable.get("langgraph_auth_user")
    server_user = runtime.server_info.user if runtime.server_info else None
    return {
        "notes": ["reported"],
        "seen": {
            "mapping": dict(user) if user else None,
            "attribute": user.identity if user else None,
            "id": configurable.get("langgraph_auth_user_id"),
            "permissions": configurable.get("langgraph_auth_permissions"),
            "user_id": configurable.get("user_id"),
            "runtime": server_user.identity if server_user else None,
            "headers": {n: v for n, v in configurable.items() if n.startswith("x-")},
        },
    }


builder = StateGraph(State)
builder.add_node("report", report_user)
builder.add_edge(START, "report")
builder.add_edge("report", END)
graph = builder.compile()


def factory(runtime: ServerRuntime):
    """Return a graph whose node reports the access context and the user."""

    def report_context(state: State) -> State:
        identity = runtime.user.identity if runtime.user else "anonymous"
        return {"notes": [f"{runtime.access_context} for {identity}"]}

    builder = StateGraph(State)
    builder.add_node("report", report_context)
    builder.add_edge(START, "report")
    return builder
