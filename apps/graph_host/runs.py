"""One run of a graph: from the worker's `start` to the `done` that ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import traceback
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.errors import EmptyInputError, ParentCommand
from langgraph.store.base import BaseStore
from langgraph.types import Command

from . import channels, encoding
from .checkpoint_cache import RunCache, StoredCheckpoint
from .event_loop import Loop
from .events import Converter, Event, Modes
from .failure_log import error_text, log_failure
from .graphs import AnyGraph, Graph, known_context, to_command
from .partial_states import (
    find_readable_ancestor,
    is_of_platform,
    is_readable,
    read_partial_state,
)
from .rpc import RunChannel
from .saver import SocketSaver, require_checkpoint
from .snapshots import thread_row
from .store import current_run_key
from .trace_parent import trace_below
from .users import User

try:
    from langgraph.runtime import RunControl
except ImportError:  # LangGraph before 1.1 cannot stop a run between steps
    RunControl = None  # type: ignore[assignment, misc]

try:
    from langgraph.errors import GraphDrained
except ImportError:

    class GraphDrained(Exception):  # type: ignore[no-redef]
        """Never raised by this version of LangGraph."""


END = "__end__"
BATCH_SECONDS = 0.003
BATCH_BYTES = 64 * 1024
_REFERENCE_KEYS = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")


class EventBuffer:
    """Sends the events of `BATCH_SECONDS` in one frame; the first event is sent at once."""

    def __init__(self, channel: RunChannel) -> None:
        self._channel = channel
        self._events: list[Event] = []
        self._bytes = 0
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._bytes += len(event[1])
        if self._bytes >= BATCH_BYTES:
            self.flush()
        elif self._timer is None:
            wait = max(0.0, self._sent_at + BATCH_SECONDS - self._loop.time())
            self._timer = self._loop.call_later(wait, self.flush)

    def flush(self) -> None:
        """Send the collected events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._events:
            self._channel.notify("events", self._events)
            self._events, self._bytes = [], 0
            self._sent_at = self._loop.time()


class RunExecution:
    """The execution of one attempt.

    `start` has the ids (`run_id`, `trace_id`, `thread_id`, `graph_id`, `assistant_id`), `attempt`,
    `metadata`, the request (`kwargs` of the run's row), and the thread's newest checkpoint
    (`head`).
    """

    def __init__(
        self, channel: RunChannel, graph: Graph, store: BaseStore | None, start: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._graph = graph
        self._store = store
        self._start = start
        self._kwargs: dict[str, Any] = encoding.loads(start["kwargs"])
        self._buffer = EventBuffer(channel)
        self._control = RunControl() if RunControl is not None else None
        self._modes = Modes.parse(self._kwargs.get("stream_mode"))
        self._cache = RunCache()
        self._saver = SocketSaver(
            channel,
            start["thread_id"],
            cache=self._cache,
            durable=self._durability == "sync",
        )
        self._channels = channels.ThreadEvents()
        self.has_ended = False
        loop, backpressure = asyncio.get_running_loop(), channel.rpc.backpressure
        if isinstance(loop, Loop) and backpressure is not None:
            loop.delay_writer = backpressure.delay_writer
        if "head" in start:
            self._cache.prime_head(StoredCheckpoint.parse(start["head"]) if start["head"] else None)

    def drain(self) -> None:
        """Stop the run before its next step; another worker resumes it."""
        if self._control is not None:
            self._control.request_drain()

    async def execute(self) -> None:
        """Execute the run and report its end to the worker."""
        current_run_key.set(self._channel.key)
        with trace_below(self._kwargs.get("trace_parent")):
            done = await self._execute()
        self._buffer.flush()
        self.has_ended = True
        self._channel.notify("done", done)

    async def _execute(self) -> dict[str, Any]:
        """Execute the run and return the fields of `done`."""
        done: dict[str, Any] = {"status": "success"}
        try:
            config, context = self._config(), self._kwargs.get("context")
            async with self._graph.open(
                "threads.create_run",
                checkpointer=self._saver,
                store=self._store,
                config=config,
                context=context,
                user=config["configurable"].get("langgraph_auth_user"),
            ) as graph:
                try:
                    await self._require_base(config)
                    graph_context = known_context(graph, context, self._own_configurable())
                    await self._stream_repaired(graph, config, graph_context)
                except asyncio.CancelledError:
                    done = {"status": "cancelled"}
                except GraphDrained:
                    done = {"status": "drained"}
                except ParentCommand as raised:
                    self._command_parent(raised.args[0])
                except (Exception, SystemExit) as error:  # noqa: BLE001 (the agent's code raises it)
                    done = self._build_failure(error)
                if done["status"] != "drained":
                    done |= await self._final_state(graph)
                if done["status"] == "success":
                    done["closing"] = self._channels.closing()
        except asyncio.CancelledError:
            done = {"status": "cancelled"}
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a factory or its exit raised)
            done = self._build_failure(error)
        return done

    def _build_failure(self, error: BaseException) -> dict[str, Any]:
        details = {"error": type(error).__name__, "message": error_text(error)}
        start = self._start
        attempt = f", attempt {start['attempt']}" if start["attempt"] > 1 else ""
        log_failure(error, f"run {start['run_id']} of graph `{start['graph_id']}`{attempt}")
        _clear_frames(error)
        return {"status": "error", "error": details}

    async def _stream_repaired(self, graph: AnyGraph, config: RunnableConfig, context: Any) -> None:
        """Stream the run; on a head that the graph refuses, start new input from an older state."""
        head, is_new_input = self._cache.head, self._input_replaces_tasks()
        try:
            await self._stream(graph, config, context)
        except Exception as error:
            is_at_start = head is not None and self._cache.head is head
            if not (is_new_input and is_at_start) or is_of_platform(error):
                raise
            if await is_readable(graph, self._thread_config()):
                raise
            ancestor = await find_readable_ancestor(graph, self._saver, self._thread_config())
            if ancestor is None:
                self._saver.hide_head()
                config["configurable"].pop("checkpoint_id", None)
            else:
                config["configurable"] |= ancestor["configurable"]
            await self._stream(graph, config, context)

    def _input_replaces_tasks(self) -> bool:
        """Whether the run starts from the thread's head with input that drops its open tasks."""
        has_input = self._kwargs.get("input") is not None and not self._kwargs.get("command")
        return has_input and not self._base() and not self._is_resumed

    async def _stream(self, graph: AnyGraph, config: RunnableConfig, context: Any) -> None:
        graph_input = self._input()
        if (
            isinstance(graph_input, Command)
            and graph_input.goto == END
            and graph_input.resume is None
        ):
            await self._close(graph, config, graph_input)
            return
        if self._kwargs.get("channels"):
            options = channels.supported_options(self._options(graph, context))
            stream = self._channels.stream(graph, graph_input, config, options, self._buffer.put)
            async with contextlib.aclosing(stream):
                async for _ in stream:
                    await self._channel.drain()
            return
        converter = Converter(self._modes)
        async for namespace, mode, data in self._parts(graph, graph_input, config, context):
            for event in converter.events(namespace, mode, data):
                self._buffer.put(event)
            await self._channel.drain()

    async def _parts(
        self, graph: AnyGraph, graph_input: Any, config: RunnableConfig, context: Any
    ) -> AsyncIterator[tuple[tuple[str, ...], str, Any]]:
        options = self._options(graph, context)
        nested = options["subgraphs"]
        if "events" in self._modes.requested:
            stream = self._through_events(graph, graph_input, config, options)
        else:
            stream = graph.astream(graph_input, config, **options)
        async with contextlib.aclosing(cast("Any", stream)) as parts:
            async for part in parts:
                if nested:
                    yield part
                else:
                    yield (), *part

    def _options(self, graph: AnyGraph, context: Any) -> dict[str, Any]:
        options: dict[str, Any] = {
            "stream_mode": self._modes.graph,
            "interrupt_before": self._kwargs.get("interrupt_before"),
            "interrupt_after": self._kwargs.get("interrupt_after"),
            "subgraphs": bool(
                self._kwargs.get("subgraphs") or self._kwargs.get("stream_subgraphs")
            ),
            "context": context,
            "durability": self._durability,
            "control": self._control,
        }
        options = {
            name: value for name, value in options.items() if name in _stream_parameters(graph)
        }
        if "durability" not in options:
            options["checkpoint_during"] = self._durability != "exit"
        return options

    async def _through_events(
        self, graph: AnyGraph, graph_input: Any, config: RunnableConfig, options: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Stream through LangChain's events, and publish each of them as an event of the run."""
        root_id = self._start["trace_id"]
        async for event in graph.astream_events(graph_input, config, version="v2", **options):
            is_root = event["run_id"] == root_id
            if is_root and event["event"] == "on_chain_stream":
                yield event["data"]["chunk"]
            self._buffer.put(("events", encoding.dumps(event)))

    async def _close(
        self, graph: AnyGraph, config: RunnableConfig, graph_input: Command[Any]
    ) -> None:
        """Handle `goto: __end__`: drop the pending tasks without running a node."""
        if graph_input.update:
            config = await graph.aupdate_state(config, cast("Any", graph_input.update))
        await graph.aupdate_state(config, None, as_node=END)
        if "values" in self._modes.requested:
            state = await graph.aget_state(self._thread_config())
            self._emit("values", state.values)

    def _command_parent(self, command: Command[Any]) -> None:
        """Publish a command for the parent graph that calls this one through `RemoteGraph`."""
        fields = {name: getattr(command, name) for name in ("update", "resume", "goto")}
        self._emit("command", {"graph": Command.PARENT, **fields})

    async def _final_state(self, graph: AnyGraph) -> dict[str, Any]:
        """Return the thread's state after the run, for `wait` and for the thread's row."""
        if self._cache.is_empty:
            return {}
        try:
            state = await graph.aget_state(self._thread_config())
        except Exception as error:
            if is_of_platform(error):
                raise
            return await self._partial_final_state(graph, error)
        if state.created_at is None:
            return {}
        return {
            **thread_row(state, self._start["thread_id"]),
            "asks": encoding.dumps([encoding.interrupt_of_stream(i) for i in state.interrupts])
            if state.interrupts
            else None,
        }

    async def _partial_final_state(self, graph: AnyGraph, error: Exception) -> dict[str, Any]:
        """Return the values of a state whose tasks the graph cannot prepare."""
        thread_id = self._start["thread_id"]
        config = self._thread_config()
        state = await read_partial_state(graph, self._saver, config, error, thread_id)
        if state is None:
            return {}
        return {"values": encoding.dumps(state["values"]), "is_state_partial": True}

    def _emit(self, name: str, data: Any) -> None:
        self._buffer.put((name, encoding.dumps(data)))

    @property
    def _durability(self) -> str:
        if self._kwargs.get("checkpoint_during") is False:
            return "exit"
        return self._kwargs.get("durability") or "async"

    @property
    def _is_resumed(self) -> bool:
        """Whether an earlier attempt of this run saved a checkpoint."""
        head = self._cache.head
        if self._start["attempt"] < 2 or head is None:
            return False
        return bool(encoding.loads(head.metadata).get("run_id") == self._start["run_id"])

    def _input(self) -> Any:
        if self._is_resumed:
            return None
        command = self._kwargs.get("command")
        if command:
            graph_input = to_command(command)
            if (
                graph_input is not None
                and not graph_input.goto
                and not graph_input.update
                and self._cache.is_empty
            ):
                raise EmptyInputError("The thread has nothing that could be resumed.")
            return graph_input
        return self._kwargs.get("input") if command is None else None

    def _own_configurable(self) -> dict[str, Any]:
        """Return the fields that the caller and the assistant configured, not the platform's."""
        fields = (self._kwargs.get("config") or {}).get("configurable") or {}
        own = {name: value for name, value in fields.items() if not name.startswith("langgraph_")}
        if "langgraph_auth_user_id" in fields:
            # Custom authentication sets it.
            own.pop("user_id", None)
        return own

    def _config(self) -> RunnableConfig:
        start, request_config = self._start, self._kwargs.get("config") or {}
        identity = {
            "run_id": start["run_id"],
            "thread_id": start["thread_id"],
            "graph_id": start["graph_id"],
            "assistant_id": start["assistant_id"],
        }
        configurable = {
            name: value
            for name, value in (request_config.get("configurable") or {}).items()
            if not name.startswith("__")
        }
        configurable |= identity
        if configurable.get("langgraph_auth_user"):
            configurable["langgraph_auth_user"] = User(configurable["langgraph_auth_user"])
        configurable.setdefault("user_id", "")
        configurable["checkpoint_ns"] = ""
        for name in _REFERENCE_KEYS:
            configurable.pop(name, None)
        configurable |= self._base()
        config: dict[str, Any] = {
            "run_id": UUID(start["trace_id"]),
            "configurable": configurable,
            "metadata": {
                **_as_object(request_config.get("metadata")),
                **start["metadata"],
                **identity,
                "run_attempt": start["attempt"],
            },
        }
        for name in ("tags", "recursion_limit", "max_concurrency", "run_name"):
            if request_config.get(name) is not None:
                config[name] = request_config[name]
        return cast("RunnableConfig", config)

    def _base(self) -> dict[str, Any]:
        """Return the `configurable` fields of the start checkpoint; empty for the newest one."""
        base = self._kwargs.get("checkpoint") or {}
        base_id = base.get("checkpoint_id") or self._kwargs.get("checkpoint_id")
        configured = (self._kwargs.get("config") or {}).get("configurable") or {}
        base_id = base_id or configured.get("checkpoint_id")
        head = self._cache.head
        is_head = head is not None and base_id == head.id
        # Clients send the head's id with every message: the run continues, it is not a replay.
        if not base_id or self._is_resumed or is_head:
            self._cache.mark_starts_from_head()
            return {}
        reference = {"checkpoint_id": base_id, "checkpoint_ns": base.get("checkpoint_ns") or ""}
        if base.get("checkpoint_map"):
            reference["checkpoint_map"] = base["checkpoint_map"]
        return reference

    async def _require_base(self, config: RunnableConfig) -> None:
        """Raise if the run's start checkpoint does not exist: LangGraph would start empty."""
        if config["configurable"].get("checkpoint_id"):
            await require_checkpoint(self._saver, config)

    def _thread_config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self._start["thread_id"], "checkpoint_ns": ""}}


def _as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def _clear_frames(error: BaseException) -> None:
    """Free the failed code's objects, which a reference cycle with the error would keep alive."""
    chain: list[BaseException] = [error]
    for link in chain:
        traceback.clear_frames(link.__traceback__)
        causes = (link.__cause__, link.__context__)
        chain += [cause for cause in causes if cause is not None and cause not in chain]
    if isinstance(error, MemoryError):
        gc.collect()


_STREAM_PARAMETERS: dict[type, frozenset[str]] = {}


def _stream_parameters(graph: AnyGraph) -> frozenset[str]:
    """Return the parameter names of `astream`, which differ between LangGraph versions."""
    kind = type(graph)
    if kind not in _STREAM_PARAMETERS:
        _STREAM_PARAMETERS[kind] = frozenset(inspect.signature(graph.astream).parameters)
    return _STREAM_PARAMETERS[kind]
