"""Events of a run for the thread protocol: by channel and namespace.

LangGraph generates most of them (`astream_events(version="v3")`). They are published in the run's
stream under names that readers filter by: `~<method>[:<qualifier>][|<namespace>...]`. The qualifier
is the node of a message or the name of a custom event. The data is defined by the protocol.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.types import Interrupt

from . import encoding
from .events import Event, convert_interrupts
from .graphs import AnyGraph

try:
    from langchain_core._api import LangChainBetaWarning
    from langchain_core.language_models._compat_bridge import message_to_events
    from langgraph.stream import StreamTransformer
except ImportError:  # before LangGraph 1.2 there is no such stream
    StreamTransformer = None  # type: ignore[assignment, misc]

PREFIX = "~"
MAX_HOLD_SECONDS = 0.003
"""Time that `values` events wait for their checkpoint event; not all have one."""
_MESSAGE_METADATA = (
    "langgraph_node",
    "langgraph_step",
    "run_id",
    "thread_id",
    "ls_provider",
    "ls_model_name",
)


class TooOld(RuntimeError):
    """The agent's LangGraph version does not support this stream."""


class ThreadEvents:
    """The protocol events of one run."""

    def __init__(self) -> None:
        self._interrupts: dict[str, tuple[list[str], Interrupt[Any]]] = {}
        self._messages: dict[str, str] = {}
        self._held: list[Event] = []
        self._held_namespace: list[str] | None = None
        self._timer: asyncio.Handle | None = None
        self._is_waiting = False

    async def stream(
        self,
        graph: AnyGraph,
        graph_input: Any,
        config: Any,
        options: dict[str, Any],
        put: Callable[[Event], None],
    ) -> AsyncGenerator[None, None]:
        """Run the graph and `put` its events; yields after each one, for backpressure."""
        if StreamTransformer is None:
            raise TooOld("Event streaming needs LangGraph 1.2 or later among the dependencies.")
        self._put = put
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LangChainBetaWarning)
            run = await graph.astream_events(
                graph_input,
                config,
                version="v3",
                transformers=[_observer(self._observe)],
                **options,
            )
        try:
            async with run:
                self._is_waiting = True
                async for event in run:
                    self._is_waiting = False
                    self._emit(event["method"], dict(event["params"]))
                    yield
                    self._is_waiting = True
        finally:
            self._release_held()

    def closing(self) -> list[Event]:
        """Return the events to publish once the end of the run is committed.

        Clients may resume the interrupts as soon as they read them.
        """
        return [
            (
                _name("input.requested", namespace),
                encoding.dumps(
                    {
                        "interrupt_id": encoding.interrupt_id(interrupt),
                        "payload": interrupt.value,
                        "value": interrupt.value,
                    }
                ),
            )
            for namespace, interrupt in self._interrupts.values()
        ]

    def events(self, method: str, params: dict[str, Any]) -> Iterator[Event]:
        """Convert one LangGraph event."""
        namespace, data = params["namespace"], params["data"]
        if method == "messages":
            yield from self._message(namespace, *data)
        elif method == "lifecycle":
            # LangGraph reports it for the parent; the protocol expects the child's namespace.
            yield _name(method, data.get("namespace") or namespace), encoding.dumps(data)
        elif method == "checkpoints":
            yield _name(method, namespace), encoding.dumps(_checkpoint(data))
        elif method == "custom" or method.startswith("custom:"):
            yield from self._custom(method, namespace, data)
        else:
            if method == "values":
                self._add_interrupts(namespace, params.get("interrupts") or ())
            yield _name(method, namespace), encoding.dumps(convert_interrupts(data))

    # Internal

    def _observe(self, event: Any) -> None:
        """Emit `tasks` events, which LangGraph filters out of the main stream."""
        if event["method"] == "tasks":
            self._emit("tasks", event["params"])

    def _emit(self, method: str, params: dict[str, Any]) -> None:
        """Emit the events, each checkpoint before its values.

        LangGraph emits the values first; clients expect the checkpoint first.
        """
        completes_held = method == "checkpoints" and self._held_namespace == params["namespace"]
        if self._held and not completes_held:
            self._release_held()
        events = list(self.events(method, params))
        if method == "values":
            self._held, self._held_namespace = events, params["namespace"]
            self._hold()
            return
        for event in events:
            self._put(event)
        if completes_held:
            self._release_held()

    def _hold(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(MAX_HOLD_SECONDS, self._release_if_alone)

    def _release_if_alone(self) -> None:
        """Release the held events unless the next event is there, which may be their checkpoint.

        On a busy loop that event may wait longer than `MAX_HOLD_SECONDS` to be read.
        """
        if not self._is_waiting:
            self._hold()
            return
        # An event that wakes the reader is before this call in the loop's queue.
        self._timer = asyncio.get_running_loop().call_soon(self._release_held)

    def _release_held(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        events, self._held, self._held_namespace, self._timer = self._held, [], None, None
        for event in events:
            self._put(event)

    def _add_interrupts(self, namespace: list[str], interrupts: Any) -> None:
        """Assign interrupts, which every parent graph reports too, to the deepest namespace."""
        for interrupt in interrupts:
            interrupt_id = encoding.interrupt_id(interrupt)
            recorded = self._interrupts.get(interrupt_id)
            if recorded is None or len(recorded[0]) < len(namespace):
                self._interrupts[interrupt_id] = namespace, interrupt

    def _custom(self, method: str, namespace: list[str], data: Any) -> Iterator[Event]:
        _, _, channel = method.partition(":")
        if channel:
            data = {"name": channel, "payload": data}
        name = data.get("name") if isinstance(data, dict) else None
        qualifier = name if isinstance(name, str) and "|" not in name else ""
        yield _name("custom", namespace, qualifier), encoding.dumps(data)

    def _message(
        self, namespace: list[str], message: Any, metadata: dict[str, Any]
    ) -> Iterator[Event]:
        name = _name("messages", namespace, str(metadata.get("langgraph_node") or ""))
        if isinstance(message, dict):
            yield name, encoding.dumps(self._with_message_id(message, metadata))
        elif "ls_model_type" in metadata and isinstance(message, AIMessage):
            # The whole answer of a model that does not stream. A message that a node returns
            # without a model call has no stream, as on LangGraph's server: it is in `values`.
            for event in message_to_events(message, message_id=message.id):
                fields = {**event, "message_id": message.id}
                if fields["event"] == "message-start":
                    fields |= {"role": "ai", "metadata": _message_metadata(metadata)}
                yield name, encoding.dumps(fields)

    def _with_message_id(self, event: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        """Add the message id, so that concurrent messages can be told apart."""
        run_id = str(metadata.get("run_id"))
        if event.get("event") == "message-start":
            self._messages[run_id] = str(event.get("id") or event.get("message_id") or run_id)
            metadata_fields = {**_message_metadata(metadata), **(event.get("metadata") or {})}
            return {**event, "message_id": self._messages[run_id], "metadata": metadata_fields}
        message_id = self._messages.get(run_id)
        if event.get("event") == "message-finish":
            self._messages.pop(run_id, None)
        return {**event, "message_id": message_id} if message_id else event


def supported_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run without those that this stream sets itself."""
    excluded = ("stream_mode", "subgraphs")
    return {name: value for name, value in options.items() if name not in excluded}


def _observer(observe: Callable[[Any], None]) -> Callable[[tuple[str, ...]], Any]:
    class Observer(StreamTransformer):
        """Observes all events first and requests additional stream modes."""

        before_builtins = True
        required_stream_modes = ("updates", "custom", "tasks", "tools", "checkpoints")

        def init(self) -> dict[str, Any]:
            return {}

        def process(self, event: Any) -> bool:
            if not self.scope:
                observe(event)
            return True

    return Observer


def _name(method: str, namespace: list[str] | tuple[str, ...], qualifier: str = "") -> str:
    base = f"{PREFIX}{method}:{qualifier}" if qualifier else PREFIX + method
    return "|".join((base, *namespace))


def _message_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    fields = {name: metadata[name] for name in _MESSAGE_METADATA if metadata.get(name) is not None}
    for name, source in (("provider", "ls_provider"), ("model", "ls_model_name")):
        if source in fields:
            fields[name] = fields.pop(source)
    return fields


def _checkpoint(data: dict[str, Any]) -> dict[str, Any]:
    """Return the checkpoint fields that forks need; the values have their own channel."""
    fields = {"id": _id(data.get("config")), "parent_id": _id(data.get("parent_config"))}
    metadata = data.get("metadata") or {}
    fields |= {"step": metadata.get("step"), "source": metadata.get("source")}
    return {name: value for name, value in fields.items() if value is not None}


def _id(config: dict[str, Any] | None) -> str | None:
    return ((config or {}).get("configurable") or {}).get("checkpoint_id")
