"""Memory across threads: `remember: {key, text}` writes to the store, `recall` searches it."""

from __future__ import annotations

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    user: str
    remember: dict
    recall: str
    """A query; empty for everything."""
    forget: str
    memories: list


async def node(state: State, runtime: Runtime) -> State:
    store, namespace = runtime.store, ("memories", state["user"])
    if fact := state.get("remember"):
        await store.aput(namespace, fact["key"], {"text": fact["text"]})
    if key := state.get("forget"):
        await store.adelete(namespace, key)
    items = await store.asearch(namespace, query=state.get("recall") or None)
    return {"memories": [[item.key, item.value["text"]] for item in items]}


builder = StateGraph(State)
builder.add_node("node", node)
builder.add_edge(START, "node")
builder.add_edge("node", END)
graph = builder.compile()
