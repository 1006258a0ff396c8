"""A run as the thread-centric protocol shows it: events by channel, and namespaces.

LangGraph makes most of them (`astream_events(version="v3")`). They leave as events of the run's
stream whose names carry what readers choose by: `~<method>[:<qualifier>][|<namespace>...]`; the
qualifier is the node of a message, or the name of a custom event. The data is that of the protocol.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langgraph.types import Interrupt

from . import encoding
from .events import Event, with_plain_interrupts
from .graphs import AnyGraph

try:
    from langchain_core._api import LangChainBetaWarning
    from langchain_core.language_models._compat_bridge import message_to_events
    from langgraph.stream import StreamTransformer
except ImportError:  # before LangGraph 1.2 there is no such stream
    StreamTransformer = None  # type: ignore[assignment, misc]

MARK = "~"
HELD_SECONDS = 0.003
"""How long values wait for the name of their checkpoint; not all have one."""
_ROLES = {"ai": "ai", "human": "human", "system": "system"}
_MESSAGE_METADATA = (
    "langgraph_node",
    "langgraph_step",
    "run_id",
    "thread_id",
    "ls_provider",
    "ls_model_name",
)


class TooOld(RuntimeError):
    """The agent's LangGraph cannot stream this way."""


class Channels:
    """The events of one run."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[list[str], Interrupt[Any]]] = {}
        self._messages: dict[str, str] = {}
        self._held: list[Event] = []
        self._held_of: list[str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def stream(
        self,
        graph: AnyGraph,
        asked: Any,
        config: Any,
        options: dict[str, Any],
        put: Callable[[Event], None],
    ) -> AsyncGenerator[None, None]:
        """Run the graph and `put` its events as they come; yields now and then, to be held up."""
        if StreamTransformer is None:
            raise TooOld("Event streaming needs LangGraph 1.2 or later among the dependencies.")
        self._put = put
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LangChainBetaWarning)
            run = await graph.astream_events(
                asked, config, version="v3", transformers=[_observer(self._observe)], **options
            )
        try:
            async with run:
                async for event in run:
                    self._say(event["method"], dict(event["params"]))
                    yield
        finally:
            self._let_go()

    def closing(self) -> list[Event]:
        """What may be heard once the run's end is committed: its questions can then be answered."""
        return [
            (
                _name("input.requested", namespace),
                encoding.dumps(
                    {
                        "interrupt_id": question.id,
                        "payload": question.value,
                        "value": question.value,
                    }
                ),
            )
            for namespace, question in self._asked.values()
        ]

    def events(self, method: str, params: dict[str, Any]) -> Iterator[Event]:
        """The events that one of LangGraph's makes."""
        namespace, data = params["namespace"], params["data"]
        if method == "messages":
            yield from self._message(namespace, *data)
        elif method == "lifecycle":
            # Told of a child by its parent; on the wire it is the child that speaks.
            yield _name(method, data.get("namespace") or namespace), encoding.dumps(data)
        elif method == "checkpoints":
            yield _name(method, namespace), encoding.dumps(_checkpoint(data))
        elif method == "custom" or method.startswith("custom:"):
            yield from self._custom(method, namespace, data)
        else:
            if method == "values":
                self._remember(namespace, params.get("interrupts") or ())
            yield _name(method, namespace), encoding.dumps(with_plain_interrupts(data))

    # Inside

    def _observe(self, event: Any) -> None:
        """Tasks are kept from the main stream by what LangGraph makes of them."""
        if event["method"] == "tasks":
            self._say("tasks", event["params"])

    def _say(self, method: str, params: dict[str, Any]) -> None:
        """Put the events out, and each checkpoint before the values that it has.

        LangGraph names it right after them; clients tie the two together the other way round.
        """
        is_of_held = method == "checkpoints" and self._held_of == params["namespace"]
        if self._held and not is_of_held:
            self._let_go()
        made = list(self.events(method, params))
        if method == "values":
            self._held, self._held_of = made, params["namespace"]
            self._timer = asyncio.get_running_loop().call_later(HELD_SECONDS, self._let_go)
            return
        for event in made:
            self._put(event)
        if is_of_held:
            self._let_go()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        held, self._held, self._held_of, self._timer = self._held, [], None, None
        for event in held:
            self._put(event)

    def _remember(self, namespace: list[str], questions: Any) -> None:
        """A question shows at every level above it; it belongs to the deepest."""
        for question in questions:
            known = self._asked.get(question.id)
            if known is None or len(known[0]) < len(namespace):
                self._asked[question.id] = namespace, question

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
            yield name, encoding.dumps(self._identified(message, metadata))
        elif isinstance(message, BaseMessage) and not isinstance(
            message, AIMessageChunk | ToolMessage
        ):
            role = _ROLES.get(message.type)
            for event in message_to_events(message, message_id=message.id) if role else ():
                made = {**event, "message_id": message.id}
                if made["event"] == "message-start":
                    made |= {"role": role, "metadata": _shown(metadata)}
                yield name, encoding.dumps(made)

    def _identified(self, event: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        """The event with its message's id, so that several messages may grow at once."""
        run_id = str(metadata.get("run_id"))
        if event.get("event") == "message-start":
            self._messages[run_id] = str(event.get("id") or event.get("message_id") or run_id)
            told = {**_shown(metadata), **(event.get("metadata") or {})}
            return {**event, "message_id": self._messages[run_id], "metadata": told}
        message_id = self._messages.get(run_id)
        if event.get("event") == "message-finish":
            self._messages.pop(run_id, None)
        return {**event, "message_id": message_id} if message_id else event


def accepted(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a run that this way of streaming takes: the rest it decides itself."""
    owned = ("stream_mode", "subgraphs")
    return {name: value for name, value in options.items() if name not in owned}


def _observer(observe: Callable[[Any], None]) -> Callable[[tuple[str, ...]], Any]:
    class Observer(StreamTransformer):
        """Sees everything first, and asks for the channels that nobody else asks for."""

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
    named = f"{MARK}{method}:{qualifier}" if qualifier else MARK + method
    return "|".join((named, *namespace))


def _shown(metadata: dict[str, Any]) -> dict[str, Any]:
    shown = {name: metadata[name] for name in _MESSAGE_METADATA if metadata.get(name) is not None}
    for ours, theirs in (("provider", "ls_provider"), ("model", "ls_model_name")):
        if theirs in shown:
            shown[ours] = shown.pop(theirs)
    return shown


def _checkpoint(data: dict[str, Any]) -> dict[str, Any]:
    """The little of a checkpoint that forks need; its values are on a channel of their own."""
    made = {"id": _id(data.get("config")), "parent_id": _id(data.get("parent_config"))}
    metadata = data.get("metadata") or {}
    made |= {"step": metadata.get("step"), "source": metadata.get("source")}
    return {name: value for name, value in made.items() if value is not None}


def _id(config: dict[str, Any] | None) -> str | None:
    return ((config or {}).get("configurable") or {}).get("checkpoint_id")
