"""Graphs that tell who asked them."""

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


async def tell(state: State, config: RunnableConfig, runtime: Runtime) -> State:
    await asyncio.sleep(state.get("sleep", 0))
    if state.get("ask"):
        interrupt(state["ask"])
    configurable = config["configurable"]
    user = configurable.get("langgraph_auth_user")
    told = runtime.server_info.user if runtime.server_info else None
    return {
        "notes": ["told"],
        "seen": {
            "mapping": dict(user) if user else None,
            "attribute": user.identity if user else None,
            "id": configurable.get("langgraph_auth_user_id"),
            "permissions": configurable.get("langgraph_auth_permissions"),
            "user_id": configurable.get("user_id"),
            "runtime": told.identity if told else None,
            "headers": {n: v for n, v in configurable.items() if n.startswith("x-")},
        },
    }


builder = StateGraph(State)
builder.add_node("tell", tell)
builder.add_edge(START, "tell")
builder.add_edge("tell", END)
graph = builder.compile()


def factory(runtime: ServerRuntime):
    """A graph with a node that is named for who asked, where somebody did."""

    def say(state: State) -> State:
        who = runtime.user.identity if runtime.user else "nobody"
        return {"notes": [f"{runtime.access_context} for {who}"]}

    made = StateGraph(State)
    made.add_node("say", say)
    made.add_edge(START, "say")
    return made
