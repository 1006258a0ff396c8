"""Calls that need the graph's code: state, history, edits, drawing, schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore
from langgraph.types import StateUpdate

from . import describe
from .checkpoint_cache import EditCache
from .graphs import Access, AnyGraph, Graph, to_command
from .rpc import RunChannel
from .saver import SocketSaver, require_checkpoint
from .snapshots import snapshot, thread_row
from .users import User

Params = Mapping[str, Any]


class UnknownMethod(ValueError):
    """The host does not support this method."""


async def execute(
    channel: RunChannel, graph: Graph, store: BaseStore | None, method: str, params: Params
) -> Any:
    """Execute a call and return its result, which `encoding.dumps` can encode."""
    if method not in _METHODS:
        raise UnknownMethod(method)
    access, function = _METHODS[method]
    saver: SocketSaver | None = None
    if "thread_id" in params:
        is_edit = access == "threads.update"
        cache = EditCache() if is_edit else None
        saver = SocketSaver(channel, params["thread_id"], cache=cache, durable=is_edit)
    user = User(params["user"]) if params.get("user") else None
    async with graph.open(
        access, checkpointer=saver, store=store, config=params.get("config"), user=user
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


class EditResult(NamedTuple):
    """The result of an edit and the new contents of the thread's row."""

    answer: Any
    thread_row: dict[str, Any] | None


async def _update(graph: AnyGraph, params: Params) -> EditResult:
    config = _config(params)
    config["metadata"] = dict(params.get("run_metadata") or {})
    if config["configurable"].get("checkpoint_id"):
        await require_checkpoint(cast("SocketSaver", graph.checkpointer), config)
    values = _values(params.get("values"))
    new_config = await graph.aupdate_state(config, values, as_node=params.get("as_node"))
    reference = {
        name: value
        for name, value in new_config["configurable"].items()
        if name in ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
    }
    return EditResult(reference, await _thread_row(graph, params))


async def _supersteps(graph: AnyGraph, params: Params) -> EditResult:
    config = _config(params)
    config["metadata"] = dict(params.get("run_metadata") or {})
    steps = [[_state_update(update) for update in step] for step in params["supersteps"]]
    await graph.abulk_update_state(config, steps)
    return EditResult(None, await _thread_row(graph, params))


async def _mirror(graph: AnyGraph, params: Params) -> EditResult:
    """Set the thread's row to the state of the newest checkpoint."""
    return EditResult(None, await _thread_row(graph, params))


def _state_update(update: Mapping[str, Any]) -> StateUpdate:
    command = update.get("command")
    values: Any = to_command(command) if command else _values(update.get("values"))
    return StateUpdate(values, update.get("as_node"))


def _values(values: Any) -> Any:
    """Convert a list of `[key, value]` lists to tuples, which JSON lacks."""
    if isinstance(values, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in values
    ):
        return [tuple(pair) for pair in values]
    return values


async def _thread_row(graph: AnyGraph, params: Params) -> dict[str, Any] | None:
    state = await graph.aget_state(_config({"thread_id": params["thread_id"]}))
    return None if state.created_at is None else thread_row(state, params["thread_id"])


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
    "supersteps": ("threads.update", _supersteps),
    "mirror": ("threads.update", _mirror),
    "graph": ("assistants.read", _drawing),
    "schemas": ("assistants.read", _schemas),
    "subgraphs": ("assistants.read", _subgraphs),
    "describe": ("assistants.read", _describe),
}
