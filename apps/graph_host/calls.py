"""Calls that need the graph's code: state, history, edits, drawing, schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.store.base import BaseStore
from langgraph.types import StateUpdate

from . import describe
from .checkpoint_cache import EditCache
from .failure_log import error_text
from .graphs import Access, AnyGraph, Graph, to_command
from .partial_states import (
    find_readable_ancestor,
    is_of_platform,
    is_readable,
    read_partial_state,
    to_partial_state,
)
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
    try:
        async with graph.open(
            access, checkpointer=saver, store=store, config=_factory_config(params), user=user
        ) as opened:
            return await function(opened, params)
    except Exception as error:
        if (answer := await _read_without_graph(channel, method, params, error)) is None:
            raise
        return answer


def _factory_config(params: Params) -> RunnableConfig:
    """Return the config of a factory, with the fields that every run of the graph has."""
    config = params.get("config") or {}
    identity = (params.get("user") or {}).get("identity") or ""
    configurable = {"user_id": identity, **(config.get("configurable") or {})}
    if "thread_id" in params:
        configurable["thread_id"] = params["thread_id"]
    return cast("RunnableConfig", {**config, "configurable": configurable})


async def execute_without_graph(
    channel: RunChannel, method: str, params: Params, error: Exception
) -> Any:
    """Return the result of a read that checkpoints alone can answer, or raise the error."""
    if (answer := await _read_without_graph(channel, method, params, error)) is None:
        raise error
    return answer


async def _read_without_graph(
    channel: RunChannel, method: str, params: Params, error: Exception
) -> Any:
    if method not in {"state", "history"} or is_of_platform(error):
        return None
    thread_id = params["thread_id"]
    saver = SocketSaver(channel, thread_id)
    if method == "state":
        return await read_partial_state(None, saver, _config(params), error, thread_id)
    saved = [item async for item in saver.alist(_config(params), **_history_options(params))]
    return [await to_partial_state(None, saver, item, error, thread_id) for item in saved] or None


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
    config, thread_id = _config(params), params["thread_id"]
    try:
        state = await graph.aget_state(config, subgraphs=bool(params.get("subgraphs")))
        return snapshot(state, thread_id)
    except Exception as error:
        if is_of_platform(error):
            raise
        answer = await read_partial_state(graph, _saver(graph), config, error, thread_id)
        if answer is None:
            raise
        return answer


async def _history(graph: AnyGraph, params: Params) -> list[dict[str, Any]]:
    options = _history_options(params)
    try:
        return [
            snapshot(state, params["thread_id"])
            async for state in graph.aget_state_history(_config(params), **options)
        ]
    except Exception as error:
        if is_of_platform(error):
            raise
        saved = [item async for item in _saver(graph).alist(_config(params), **options)]
        if not saved:
            raise
    # One state that the graph refuses ends its iteration, so each is read by itself.
    return [await _state(graph, {**params, "checkpoint": _reference(item)}) for item in saved]


def _history_options(params: Params) -> dict[str, Any]:
    options: dict[str, Any] = {"limit": params.get("limit", 1), "filter": params.get("metadata")}
    if before := params.get("before"):
        options["before"] = {"configurable": {"checkpoint_id": before}}
    return options


def _reference(saved: CheckpointTuple) -> dict[str, Any]:
    configurable = saved.config["configurable"]
    return {name: configurable[name] for name in ("checkpoint_id", "checkpoint_ns")}


def _saver(graph: AnyGraph) -> SocketSaver:
    return cast("SocketSaver", graph.checkpointer)


class EditResult(NamedTuple):
    """The result of an edit and the new contents of the thread's row."""

    answer: Any
    thread_row: dict[str, Any] | None


async def _update(graph: AnyGraph, params: Params) -> EditResult:
    config = _config(params)
    config["metadata"] = dict(params.get("run_metadata") or {})
    if config["configurable"].get("checkpoint_id"):
        await require_checkpoint(_saver(graph), config)
    head = await _saver(graph).aget_tuple(config)
    values = _values(params.get("values"))
    try:
        new_config = await graph.aupdate_state(config, values, as_node=params.get("as_node"))
    except Exception as error:
        base = await _repair_base(graph, config, head, error)
        if base is None:
            raise
        base["metadata"] = config["metadata"]
        new_config = await graph.aupdate_state(base, values, as_node=params.get("as_node"))
    reference = {
        name: value
        for name, value in new_config["configurable"].items()
        if name in ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
    }
    return EditResult(reference, await _thread_row(graph, params))


async def _repair_base(
    graph: AnyGraph, config: RunnableConfig, head: CheckpointTuple | None, error: Exception
) -> RunnableConfig | None:
    """Return the config of a state to edit instead of the thread's, which the graph refuses.

    None if the graph reads the thread's state, so that the edit itself is at fault.
    """
    has_base = config["configurable"].keys() & {"checkpoint_id", "checkpoint_map"}
    if has_base or head is None or is_of_platform(error):
        return None
    if await is_readable(graph, head.config):
        return None
    ancestor = await find_readable_ancestor(graph, _saver(graph), head.config)
    if ancestor is None and not config["configurable"]["checkpoint_ns"]:
        _saver(graph).hide_head()
        return {"configurable": dict(config["configurable"])}
    return ancestor


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
    schemas = describe.schemas(graph)
    try:
        return {"schemas": schemas, "drawing": await describe.drawing(graph)}
    except Exception as error:  # noqa: BLE001 (the drawing calls the agent's code)
        problem = f"{type(error).__name__}: {error_text(error)}"
        return {"schemas": schemas, "drawing": None, "problem": problem}


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
