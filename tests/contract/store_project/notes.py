"""Graphs that use the store: `notes` writes and searches, the others ask, fail or sleep."""

import asyncio
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    namespace: list[str]
    keep: dict[str, Any]
    """Values by key."""
    index: Any
    ttl: float
    find: str
    filter: dict[str, Any]
    items: list[Any]
    namespaces: list[Any]


async def keep(state: State, runtime: Runtime) -> State:
    options = {"ttl": state["ttl"]} if "ttl" in state else {}
    for key, value in (state.get("keep") or {}).items():
        await runtime.store.aput(
            tuple(state["namespace"]), key, value, state.get("index"), **options
        )
    return {}


def find(state: State, runtime: Runtime) -> State:
    """Search in a blocking node, which runs in a thread."""
    namespace = tuple(state["namespace"])
    items = runtime.store.search(namespace, query=state.get("find"), filter=state.get("filter"))
    return {
        "items": [[item.key, item.value, item.score] for item in items],
        "namespaces": [list(name) for name in runtime.store.list_namespaces(prefix=namespace)],
    }


builder = StateGraph(State).add_node("keep", keep).add_node("find", find)
builder.add_edge(START, "keep").add_edge("keep", "find").add_edge("find", END)
graph = builder.compile()


class TextState(TypedDict, total=False):
    text: str


def build_single_node(node):
    return (
        StateGraph(TextState).add_node("node", node).add_edge(START, "node").add_edge("node", END)
    )


def put_question(state: TextState) -> TextState:
    return {"text": interrupt({"question": "Really?"})}


def raise_error(state: TextState) -> TextState:
    raise LookupError("no such city")


async def sleep(state: TextState) -> TextState:
    await asyncio.sleep(60)
    return {}


ask = build_single_node(put_question).compile()
fail = build_single_node(raise_error).compile()
nap = build_single_node(sleep).compile()
