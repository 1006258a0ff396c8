"""Questions about a graph that need its code: states, history, updates, drawings, schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore

from . import describe
from .door import Door
from .graphs import Access, AnyGraph, Graph
from .saver import SocketSaver
from .snapshots import snapshot

Params = Mapping[str, Any]


class UnknownMethod(ValueError):
    """A call that this host does not know."""


async def answer(
    door: Door, graph: Graph, store: BaseStore | None, method: str, params: Params
) -> Any:
    """The answer to one call, as a value for JSON."""
    if method not in _METHODS:
        raise UnknownMethod(method)
    access, function = _METHODS[method]
    saver = SocketSaver(door, params["thread_id"], durable=True) if "thread_id" in params else None
    async with graph.open(
        access, checkpointer=saver, store=store, config=params.get("config")
    ) as opened:
        return await function(opened, params)


def _config(params: Params) -> RunnableConfig:
    reference = params.get("checkpoint") or {}
    configurable = {
        "thread_id": params["thread_id"],
        "checkpoint_ns": reference.get("checkpoint_ns") or "",
    }
    for name in ("checkpoint_id", "checkpoint_map"):
        if reference.get(name):
            configurable[name] = reference[name]
    return {"configurable": configurable}


async def _state(graph: AnyGraph, params: Params) -> dict[str, Any]:
    state = await graph.aget_state(_config(params), subgraphs=bool(params.get("subgraphs")))
    return snapshot(state, params["thread_id"])


async def _history(graph: AnyGraph, params: Params) -> list[dict[str, Any]]:
    before = params.get("before")
    options: dict[str, Any] = {"limit": params.get("limit", 1), "filter": params.get("metadata")}
    if before:
        options["before"] = {"configurable": {"checkpoint_id": before}}
    return [
        snapshot(state, params["thread_id"])
        async for state in graph.aget_state_history(_config(params), **options)
    ]


async def _update(graph: AnyGraph, params: Params) -> dict[str, Any]:
    values = params.get("values")
    if isinstance(values, list):
        values = [tuple(pair) for pair in values]
    config = _config(params)
    config["metadata"] = dict(params.get("run_metadata") or {})
    made = await graph.aupdate_state(config, cast("Any", values), as_node=params.get("as_node"))
    reference = {
        name: value
        for name, value in made["configurable"].items()
        if name in ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
    }
    state = await graph.aget_state(_config({**params, "checkpoint": None}))
    return {
        "checkpoint": reference,
        "state": snapshot(state, params["thread_id"]),
        "unfinished": bool(state.next),
    }


async def _drawing(graph: AnyGraph, params: Params) -> dict[str, Any]:
    return await describe.drawing(graph, xray=params.get("xray", False))


async def _schemas(graph: AnyGraph, _: Params) -> dict[str, Any]:
    return describe.schemas(graph)


async def _subgraphs(graph: AnyGraph, params: Params) -> dict[str, Any]:
    return await describe.subgraphs(
        graph, params.get("namespace"), recurse=bool(params.get("recurse"))
    )


async def _describe(graph: AnyGraph, _: Params) -> dict[str, Any]:
    return {"schemas": describe.schemas(graph), "drawing": await describe.drawing(graph)}


_METHODS: dict[str, tuple[Access, Callable[[AnyGraph, Params], Awaitable[Any]]]] = {
    "state": ("threads.read", _state),
    "history": ("threads.read", _history),
    "update_state": ("threads.update", _update),
    "graph": ("assistants.read", _drawing),
    "schemas": ("assistants.read", _schemas),
    "subgraphs": ("assistants.read", _subgraphs),
    "describe": ("assistants.read", _describe),
}
