"""Thread states from checkpoints alone, for a graph that raises when it prepares their tasks.

LangGraph prepares the tasks of a state to find its `next` and `tasks`, and thereby parses the
values with the graph's schema. Values that the schema refuses, once saved, would make the thread
unreadable and all later runs and edits fail.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import StateSnapshot

from .failure_log import error_text
from .graphs import AnyGraph
from .rpc import LinkClosed, Refused
from .saver import SocketSaver
from .snapshots import snapshot

MAX_ANCESTORS = 100
"""Checkpoints that a search for a readable state reads."""

_INTERNAL_PREFIXES = ("__", "branch:", "join:", "start:")
"""Prefixes of the names of channels that are not part of the values."""


def is_of_platform(error: BaseException) -> bool:
    """Whether the platform did not execute a request of the host; the graph is not at fault."""
    return isinstance(error, (Refused, LinkClosed))


async def read_partial_state(
    graph: AnyGraph | None,
    saver: SocketSaver,
    config: RunnableConfig,
    error: BaseException,
    thread_id: str,
) -> dict[str, Any] | None:
    """Return the JSON of a state without its tasks; None if there is no such checkpoint.

    `error` is why the graph could not return the state. Without a graph, the values are those of
    all channels with a public name.
    """
    saved = await saver.aget_tuple(config)
    return None if saved is None else await to_partial_state(graph, saver, saved, error, thread_id)


async def to_partial_state(
    graph: AnyGraph | None,
    saver: SocketSaver,
    saved: CheckpointTuple,
    error: BaseException,
    thread_id: str,
) -> dict[str, Any]:
    """Return the JSON of a checkpoint's state without its tasks."""
    fields = {
        "values": await _values(graph, saver, saved),
        "next": (),
        "config": saved.config,
        "metadata": saved.metadata,
        "created_at": saved.checkpoint["ts"],
        "parent_config": saved.parent_config,
        "tasks": (),
        "interrupts": (),
    }
    state = StateSnapshot(**{name: fields[name] for name in StateSnapshot._fields})
    reason = {"error": type(error).__name__, "message": error_text(error)}
    return {**snapshot(state, thread_id), "graph_error": reason}


async def _values(graph: AnyGraph | None, saver: SocketSaver, saved: CheckpointTuple) -> Any:
    if graph is not None and not saved.config["configurable"].get("checkpoint_ns"):
        try:
            return await _read_channels(graph, saver, saved)
        except Exception as error:
            if is_of_platform(error):
                raise
    values = saved.checkpoint["channel_values"]
    return {
        name: value for name, value in values.items() if not name.startswith(_INTERNAL_PREFIXES)
    }


async def _read_channels(graph: AnyGraph, saver: SocketSaver, saved: CheckpointTuple) -> Any:
    # No public function reads the values alone. Other versions of LangGraph raise, and the caller
    # reads the stored values instead.
    from langgraph.pregel._checkpoint import achannels_from_checkpoint  # noqa: PLC0415
    from langgraph.pregel._io import read_channels  # noqa: PLC0415

    channels, _ = await achannels_from_checkpoint(
        graph.channels, saved.checkpoint, saver=saver, config=saved.config
    )
    return read_channels(channels, graph.stream_channels_asis)


async def is_readable(graph: AnyGraph, config: RunnableConfig) -> bool:
    """Whether the graph can prepare the tasks of the state at a checkpoint."""
    try:
        await graph.aget_state(config)
    except Exception as error:
        if is_of_platform(error):
            raise
        return False
    return True


async def find_readable_ancestor(
    graph: AnyGraph, saver: SocketSaver, head: RunnableConfig
) -> RunnableConfig | None:
    """Return the newest ancestor of a checkpoint whose state the graph can read; None without."""
    saved = await saver.aget_tuple(head)
    for _ in range(MAX_ANCESTORS):
        if saved is None or saved.parent_config is None:
            return None
        if await is_readable(graph, saved.parent_config):
            return saved.parent_config
        saved = await saver.aget_tuple(saved.parent_config)
    return None
