"""Graphs that use the store: `notes` keeps and finds, the others end in their own ways."""

import asyncio
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    place: list[str]
    keep: dict[str, Any]
    """Values by key."""
    index: Any
    ttl: float
    find: str
    filter: dict[str, Any]
    found: list[Any]
    namespaces: list[Any]


async def keep(state: State, runtime: Runtime) -> State:
    options = {"ttl": state["ttl"]} if "ttl" in state else {}
    for key, value in (state.get("keep") or {}).items():
        await runtime.store.aput(tuple(state["place"]), key, value, state.get("index"), **options)
    return {}


def find(state: State, runtime: Runtime) -> State:
    """A blocking node, on a thread."""
    place = tuple(state["place"])
    items = runtime.store.search(place, query=state.get("find"), filter=state.get("filter"))
    return {
        "found": [[item.key, item.value, item.score] for item in items],
        "namespaces": [list(name) for name in runtime.store.list_namespaces(prefix=place)],
    }


builder = StateGraph(State).add_node("keep", keep).add_node("find", find)
builder.add_edge(START, "keep").add_edge("keep", "find").add_edge("find", END)
graph = builder.compile()


class Said(TypedDict, total=False):
    text: str


def _one(node):
    return StateGraph(Said).add_node("node", node).add_edge(START, "node").add_edge("node", END)


def put_question(state: Said) -> Said:
    return {"text": interrupt({"question": "Really?"})}


def raise_error(state: Said) -> Said:
    raise LookupError("no such city")


async def sleep(state: Said) -> Said:
    await asyncio.sleep(60)
    return {}


ask = _one(put_question).compile()
fail = _one(raise_error).compile()
nap = _one(sleep).compile()
