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
from .commands import to_command
from .events import Converter, Event, Modes
from .graphs import AnyGraph, Graph, known_context
from .rpc import Door
from .saver import SocketSaver, Stored
from .snapshots import left
from .store import speaker
from .users import User

try:
    from langgraph.runtime import RunControl
except ImportError:  # before LangGraph 1.1 a run cannot be asked to stop between steps
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


class Outbox:
    """Events on their way out, a few milliseconds' worth at a time; the first goes at once."""

    def __init__(self, door: Door) -> None:
        self._door = door
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
        """Send what is waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._events:
            self._door.tell("events", self._events)
            self._events, self._bytes = [], 0
            self._sent_at = self._loop.time()


class Run:
    """The execution of one attempt.

    `start` says who it is (`run_id`, `thread_id`, `graph_id`, `assistant_id`, `attempt`,
    `metadata`), what was asked (`kwargs`, as the run's row holds it), and what the worker read
    beforehand (`head`).
    """

    def __init__(
        self, door: Door, graph: Graph, store: BaseStore | None, start: dict[str, Any]
    ) -> None:
        self._door = door
        self._graph = graph
        self._store = store
        self._start = start
        self._kwargs: dict[str, Any] = encoding.loads(start["kwargs"])
        self._outbox = Outbox(door)
        self._control = RunControl() if RunControl is not None else None
        self._modes = Modes.of(self._kwargs.get("stream_mode"))
        self._saver = SocketSaver(
            door,
            start["thread_id"],
            keeps=True,
            durable=self._durability == "sync",
        )
        self._channels = channels.Channels()
        self.has_ended = False
        if "head" in start:
            self._saver.know_head(Stored.of(start["head"]) if start["head"] else None)

    def drain(self) -> None:
        """Ask the run to stop before its next step; its attempt ends without an outcome."""
        if self._control is not None:
            self._control.request_drain()

    async def execute(self) -> None:
        """Run to the end and tell the worker how it ended."""
        ended: dict[str, Any] = {"status": "success"}
        speaker.set(self._door.key)
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
                    given = known_context(graph, context, config["configurable"])
                    await self._stream(graph, config, given)
                except asyncio.CancelledError:
                    ended = {"status": "cancelled"}
                except GraphDrained:
                    ended = {"status": "drained"}
                except ParentCommand as raised:
                    self._command_parent(raised.args[0])
                except (Exception, SystemExit) as error:  # noqa: BLE001 (the agent's code raises it)
                    ended = _failed(error)
                if ended["status"] != "drained":
                    ended |= await self._final_state(graph)
                if ended["status"] == "success":
                    ended["closing"] = self._channels.closing()
        except asyncio.CancelledError:
            ended = {"status": "cancelled"}
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a factory or its exit raised)
            ended = _failed(error)
        self._outbox.flush()
        self.has_ended = True
        self._door.tell("done", ended)

    async def _stream(self, graph: AnyGraph, config: RunnableConfig, context: Any) -> None:
        asked = self._input()
        if isinstance(asked, Command) and asked.goto == END and asked.resume is None:
            await self._close(graph, config, asked)
            return
        if self._kwargs.get("channels"):
            options = channels.accepted(self._options(graph, context))
            speaking = self._channels.stream(graph, asked, config, options, self._outbox.put)
            async with contextlib.aclosing(speaking):
                async for _ in speaking:
                    await self._door.give_way()
            return
        converter = Converter(self._modes)
        async for namespace, mode, data in self._parts(graph, asked, config, context):
            for event in converter.events(namespace, mode, data):
                self._outbox.put(event)
            await self._door.give_way()

    async def _parts(
        self, graph: AnyGraph, asked: Any, config: RunnableConfig, context: Any
    ) -> AsyncIterator[tuple[tuple[str, ...], str, Any]]:
        options = self._options(graph, context)
        nested = options["subgraphs"]
        if "events" in self._modes.asked:
            stream = self._through_events(graph, asked, config, options)
        else:
            stream = graph.astream(asked, config, **options)
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
        options = {name: value for name, value in options.items() if name in _accepted(graph)}
        if "durability" not in options:
            options["checkpoint_during"] = self._durability != "exit"
        return options

    async def _through_events(
        self, graph: AnyGraph, asked: Any, config: RunnableConfig, options: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """The stream by way of LangChain's events, each of which is an event of the run as well."""
        run_id = self._start["run_id"]
        async for event in graph.astream_events(asked, config, version="v2", **options):
            is_root = event["run_id"] == run_id
            if is_root and event["event"] == "on_chain_stream":
                yield event["data"]["chunk"]
            self._outbox.put(("events", encoding.dumps(event)))

    async def _close(self, graph: AnyGraph, config: RunnableConfig, asked: Command[Any]) -> None:
        """`goto: __end__` drops the tasks that wait, without running anything."""
        if asked.update:
            config = await graph.aupdate_state(config, cast("Any", asked.update))
        await graph.aupdate_state(config, None, as_node=END)
        if "values" in self._modes.asked:
            state = await graph.aget_state(self._thread_config())
            self._emit("values", state.values)

    def _command_parent(self, command: Command[Any]) -> None:
        """Tell whoever has this graph as a node of theirs (`RemoteGraph`) what to do next."""
        told = {name: getattr(command, name) for name in ("update", "resume", "goto")}
        self._emit("command", {"graph": Command.PARENT, **told})

    async def _final_state(self, graph: AnyGraph) -> dict[str, Any]:
        """The thread as the run leaves it: what `wait` answers and what states show."""
        if self._saver.is_empty:
            return {}
        state = await graph.aget_state(self._thread_config())
        if state.created_at is None:
            return {}
        return {
            **left(state, self._start["thread_id"]),
            "asks": encoding.dumps([encoding.interrupt_of_stream(i) for i in state.interrupts])
            if state.interrupts
            else None,
        }

    def _emit(self, name: str, data: Any) -> None:
        self._outbox.put((name, encoding.dumps(data)))

    @property
    def _durability(self) -> str:
        if self._kwargs.get("checkpoint_during") is False:
            return "exit"
        return self._kwargs.get("durability") or "async"

    @property
    def _goes_on(self) -> bool:
        """Whether an earlier attempt of this run got as far as a checkpoint."""
        head = self._saver.head
        if self._start["attempt"] < 2 or head is None:
            return False
        return bool(encoding.loads(head.metadata).get("run_id") == self._start["run_id"])

    def _input(self) -> Any:
        if self._goes_on:
            return None
        command = self._kwargs.get("command")
        if command:
            asked = to_command(command)
            if asked is not None and not asked.goto and not asked.update and self._saver.is_empty:
                raise EmptyInputError("The thread has nothing that could be resumed.")
            return asked
        return self._kwargs.get("input") if command is None else None

    def _config(self) -> RunnableConfig:
        start, given = self._start, self._kwargs.get("config") or {}
        run_id = start["run_id"]
        identity = {
            "run_id": run_id,
            "thread_id": start["thread_id"],
            "graph_id": start["graph_id"],
            "assistant_id": start["assistant_id"],
        }
        configurable = {
            name: value
            for name, value in (given.get("configurable") or {}).items()
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
            "run_id": UUID(run_id),
            "configurable": configurable,
            "metadata": {
                **_object(given.get("metadata")),
                **start["metadata"],
                **identity,
                "run_attempt": start["attempt"],
            },
        }
        for name in ("tags", "recursion_limit", "max_concurrency", "run_name"):
            if given.get(name) is not None:
                config[name] = given[name]
        return cast("RunnableConfig", config)

    def _base(self) -> dict[str, Any]:
        """The checkpoint to start from: none for the head."""
        base = self._kwargs.get("checkpoint") or {}
        asked_id = base.get("checkpoint_id") or self._kwargs.get("checkpoint_id")
        configured = (self._kwargs.get("config") or {}).get("configurable") or {}
        asked_id = asked_id or configured.get("checkpoint_id")
        head = self._saver.head
        is_head = head is not None and asked_id == head.id
        # Clients name the head with every message: that is to go on from it, not to replay it.
        if not asked_id or self._goes_on or is_head:
            self._saver.goes_forward()
            return {}
        reference = {"checkpoint_id": asked_id, "checkpoint_ns": base.get("checkpoint_ns") or ""}
        if base.get("checkpoint_map"):
            reference["checkpoint_map"] = base["checkpoint_map"]
        return reference

    def _thread_config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self._start["thread_id"], "checkpoint_ns": ""}}


def _object(value: Any) -> dict[str, Any]:
    """That value if it is an object; nothing else has keys to merge."""
    return value if isinstance(value, dict) else {}


def _failed(error: BaseException) -> dict[str, Any]:
    told = {"error": type(error).__name__, "message": str(error)}
    _let_go(error)
    return {"status": "error", "error": told}


def _let_go(error: BaseException) -> None:
    """Free what the failed code held: in a cycle with its error it could starve the next run."""
    chain: list[BaseException] = [error]
    for one in chain:
        traceback.clear_frames(one.__traceback__)
        causes = (one.__cause__, one.__context__)
        chain += [cause for cause in causes if cause is not None and cause not in chain]
    if isinstance(error, MemoryError):
        gc.collect()


_ACCEPTED: dict[type, frozenset[str]] = {}


def _accepted(graph: AnyGraph) -> frozenset[str]:
    """The names of `astream`'s parameters: LangGraph has added some over time."""
    kind = type(graph)
    if kind not in _ACCEPTED:
        _ACCEPTED[kind] = frozenset(inspect.signature(graph.astream).parameters)
    return _ACCEPTED[kind]
