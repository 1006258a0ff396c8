"""A question to a graph host, seen from the worker: it reads a thread, it writes nothing."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from apps.agent_runtime.db.run_store import READ_ONLY, owner_of
from apps.agent_runtime.hosts.graph_host import GraphHost, RevisionRef
from apps.core.json import dumps
from apps.graph_host.wire import Frame

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine


class Question(NamedTuple):
    """What is asked, of which graph of which revision."""

    revision: RevisionRef
    graph_id: str
    method: str
    thread: UUID | None
    """The row's key of the thread that may be read."""
    thread_id: str | None
    params: bytes
    """JSON; `thread_id` is put in by the graph host's caller."""


class Reply(NamedTuple):
    """What the host said: JSON, of the answer or of `{error, message}`."""

    done: bool
    body: bytes


class CallSession:
    """One question while its host works on it."""

    def __init__(self, engine: Engine, host: GraphHost, question: Question) -> None:
        self._engine = engine
        self._host = host
        self._question = question
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, seconds: float) -> Reply:
        """The reply. `TimeoutError` when there is none in time."""
        key = self._host.open(self)
        asked = self._question
        try:
            async with asyncio.timeout(seconds):
                self._host.link.send(("call", key, asked.graph_id, asked.method, asked.params))
                return await self._reply
        finally:
            self._host.forget(key)

    def take(self, frame: Frame) -> None:
        kind, _, number, *rest = frame
        try:
            if kind == "result":
                self._settle(Reply(bool(rest[0]), bytes(rest[1])))
            elif kind in ("get", "list"):
                self._read(kind, number, rest)
            elif kind == "store":
                reply = functools.partial(self._answer, number)
                owner = owner_of(self._question.revision)
                self._spawn(self._engine.store.answer(owner, rest[0], None, reply))
            elif number:
                self._answer(number, False, READ_ONLY)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            self._answer(number, False, f"malformed `{kind}`: {error}")

    def lost(self, reason: str) -> None:
        self._settle(Reply(False, failure("GraphHostDied", reason)))

    def _settle(self, reply: Reply) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)

    def _read(self, kind: str, number: int, rest: list[Any]) -> None:
        thread_id, *wanted = rest
        if self._question.thread is None or thread_id != self._question.thread_id:
            raise ValueError("A question is about one thread only.")
        reader = self._engine.checkpoints
        read = reader.get if kind == "get" else reader.list
        self._spawn(self._read_and_answer(number, read(self._question.thread, *wanted)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_and_answer(self, number: int, work: Any) -> None:
        try:
            self._answer(number, True, await work)
        except Exception as error:  # noqa: BLE001  (the host waits for an answer, whatever happens)
            self._answer(number, False, f"The platform could not read it: {type(error).__name__}")

    def _answer(self, number: int, done: bool, value: Any) -> None:  # noqa: FBT001  (a frame's field)
        try:
            self._host.link.send(("answer", number, done, value))
        except ValueError as error:
            self._host.link.send(("answer", number, False, str(error)))


def failure(name: str, message: str) -> bytes:
    """The JSON of a reply that says why there is no answer."""
    return dumps({"error": name, "message": message})
