"""One attempt of a run, seen from the worker: what its host says and what is done about it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.agent_runtime.db.write_batch import Claimed, Put, Release, Stale, Writes
from apps.core.json import dumps, storable
from apps.graph_host.wire import Frame

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine
    from apps.agent_runtime.hosts.graph_host import GraphHost
    from apps.agent_runtime.hosts.isolation import Cell

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""How long a run that was told to stop may take."""

# What the agent's process may do to a thread with checkpoints of its own run: add.
_NOT_FOR_RUNS = "A run may read and write its own thread only."


class RunSession:
    """The execution of one claimed run on one host."""

    def __init__(self, engine: Engine, claimed: Claimed, head: list[Any] | None) -> None:
        self._engine = engine
        self.claimed = claimed
        self._head = head
        self._thread_id = str(claimed.thread_id)
        self._host: GraphHost | None = None
        self._cell: Cell | None = None
        self._key = 0
        self._over = False
        self._timed_out = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._is_unwanted = False
        self._kinds: dict[str, Callable[[int, list[Any]], None]] = {
            "events": self._events,
            "put": self._put,
            "writes": self._writes,
            "get": self._get,
            "list": self._list,
            "thread": self._refuse,
            "store": self._store,
            "done": self._done,
        }

    # From the engine

    @property
    def is_over(self) -> bool:
        return self._over

    def begin(self, host: GraphHost, limit_seconds: float, cell: Cell | None = None) -> None:
        """Send the run to its host, which may be that of a cell."""
        claimed = self.claimed
        self._cell = cell
        self._host = host
        self._key = host.open(self)
        start: dict[str, Any] = {
            "run_id": str(claimed.run_id),
            "attempt": claimed.attempt,
            "thread_id": self._thread_id,
            "graph_id": claimed.graph_id,
            "assistant_id": str(claimed.assistant_id),
            "metadata": json.loads(claimed.metadata),
            "kwargs": claimed.kwargs.encode(),
            "head": self._head,
        }
        self._head = None
        self._timer = asyncio.get_running_loop().call_later(limit_seconds, self._time_is_up)
        try:
            host.link.send(("start", self._key, start))
        except (ValueError, TypeError, OverflowError) as error:  # what no frame can carry
            self.fail(type(error).__name__, str(error))

    def cancel(self, action: str) -> None:
        """Stop the run because somebody asked.

        Code that does not let itself be stopped is left behind after a while; what it still says is
        refused, as the run has ended.
        """
        if self._over or self._is_stopping:
            return
        self._is_stopping = True
        self._is_unwanted = action == "rollback"
        if self._host is None:
            self._end({"status": "cancelled", "is_unknown": self.claimed.attempt > 1})
            return
        self._host.link.send(("cancel", self._key, action))
        self._grace = asyncio.get_running_loop().call_later(STOP_SECONDS, self._leave_behind)

    def _leave_behind(self) -> None:
        if not self._over:
            self._end({"status": "cancelled", "is_unknown": True})

    def drain(self) -> None:
        """Let the run stop before its next step, to go on elsewhere."""
        if self._host is not None and not self._over:
            self._host.link.send(("drain", self._key))

    def give_up(self, reason: str) -> None:
        """Drop the run without writing anything: it is somebody else's now."""
        if self._over:
            return
        logger.warning("Run %s is given up: %s", self.claimed.run_id, reason)
        if self._host is not None:
            self._host.link.send(("cancel", self._key, "lost"))
        self._close()
        self._engine.voice.fall_silent(self.claimed)

    def release(self) -> None:
        """Drop the run and return it to the queue at once."""
        if not self._over:
            if self._host is not None:
                self._host.link.send(("cancel", self._key, "lost"))
            self._close()
            self._give_back()

    def _give_back(self) -> None:
        claimed = self.claimed
        self._engine.voice.fall_silent(claimed)
        release = Release(claimed.token, company=claimed.company)
        self._engine.ledger.put(release, urgent=True)

    def fail(self, name: str, message: str) -> None:
        """End the run with an error that is not of its graph's making."""
        if not self._over:
            unknown = self.claimed.attempt > 1
            error = {"error": name, "message": message}
            self._end({"status": "error", "error": error, "is_unknown": unknown})

    # From the host

    def take(self, frame: Frame) -> None:
        kind, _, number, *rest = frame
        handle = self._kinds.get(kind)
        if handle is None or self._over:
            return
        try:
            handle(number, rest)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            # The host runs hostile code: a frame that makes no sense is the run's own misfortune.
            logger.info("Run %s sent a malformed `%s`: %s", self.claimed.run_id, kind, error)
            if number:
                self._answer(number, False, f"malformed `{kind}`: {error}")

    def lost(self, reason: str) -> None:
        if self._over:
            return
        together = self._host.died_with if self._host is not None else 1
        self._close()
        attempts = self._engine.attempts
        if self._is_stopping:  # it ends as it would have, had its host lived on
            told = {"status": "cancelled", "is_unknown": True}
            work = self._finish(told)
        else:
            work = attempts.host_died(self.claimed, reason, together)
        self._spawn(work)

    def _events(self, _: int, rest: list[Any]) -> None:
        events = [(str(name), bytes(data)) for name, data in rest[0]]
        self._engine.publish(self.claimed, events, self._host)

    def _put(self, number: int, rest: list[Any]) -> None:
        thread_id, namespace, id_, parent_id, kind, blob, metadata, versions, blobs = rest
        self._must_be_own(thread_id)
        rows = [(str(c), str(v), str(k), bytes(b)) for c, v, k, b in blobs]
        entry = Put(
            self.claimed.token,
            str(namespace),
            UUID(id_),
            UUID(parent_id) if parent_id else None,
            str(kind),
            bytes(blob),
            storable(metadata).decode(),
            dumps(dict(versions)).decode(),
            rows,
            len(blob) + len(metadata) + sum(len(row[3]) for row in rows),
        )
        self._write(number, entry)

    def _writes(self, number: int, rest: list[Any]) -> None:
        thread_id, namespace, id_, rows = rest
        self._must_be_own(thread_id)
        made = [
            (str(task), int(index), str(channel), str(kind), bytes(blob), str(path))
            for task, index, channel, kind, blob, path in rows
        ]
        size = sum(len(row[4]) for row in made)
        entry = Writes(self.claimed.token, str(namespace), UUID(id_), made, size)
        self._write(number, entry)

    def _write(self, number: int, entry: Put | Writes) -> None:
        if not number:
            self._engine.ledger.put(entry)
        else:
            self._spawn(self._write_and_answer(number, entry))
        self._engine.hold_back(self._host)

    async def _write_and_answer(self, number: int, entry: Put | Writes) -> None:
        try:
            await self._engine.ledger.write(entry)
        except Stale:
            self._answer(number, False, "This run now belongs to another attempt.")
        else:
            self._answer(number, True, None)

    def _get(self, number: int, rest: list[Any]) -> None:
        thread_id, namespace, checkpoint_id = rest
        self._must_be_own(thread_id)
        work = self._engine.checkpoints.get(self.claimed.thread, str(namespace), checkpoint_id)
        self._spawn(self._read_and_answer(number, work))

    def _list(self, number: int, rest: list[Any]) -> None:
        thread_id, *wanted = rest
        self._must_be_own(thread_id)
        work = self._engine.checkpoints.list(self.claimed.thread, *wanted)
        self._spawn(self._read_and_answer(number, work))

    async def _read_and_answer(self, number: int, work: Any) -> None:
        # What this run wrote a moment ago may still be on its way.
        try:
            await self._engine.settled()
            self._answer(number, True, await work)
        except Exception as error:
            logger.exception("A checkpoint could not be read.")
            self._answer(number, False, f"The platform could not read it: {type(error).__name__}")

    def _refuse(self, number: int, _: list[Any]) -> None:
        self._answer(number, False, _NOT_FOR_RUNS)

    def _store(self, number: int, rest: list[Any]) -> None:
        self._spawn(self._engine.use_store(self.claimed, rest[0], number, self._answer))

    def _done(self, _: int, rest: list[Any]) -> None:
        self._end(rest[0])

    def _must_be_own(self, thread_id: Any) -> None:
        if thread_id != self._thread_id:
            raise ValueError(_NOT_FOR_RUNS)

    def _answer(self, number: int, done: bool, value: Any) -> None:  # noqa: FBT001  (a frame's field)
        if self._host is None:
            return
        try:
            self._host.link.send(("answer", number, done, value))
        except ValueError as error:
            self._host.link.send(("answer", number, False, str(error)))

    # The end

    def _time_is_up(self) -> None:
        self._timed_out = True
        self.cancel("timeout")

    def _end(self, told: dict[str, Any]) -> None:
        self._close()
        if told.get("status") == "drained":
            self._give_back()
        else:
            self._spawn(self._finish(told))

    def _finish(self, told: dict[str, Any]) -> Coroutine[Any, Any, None]:
        timed_out, unwanted = self._timed_out, self._is_unwanted
        finish = self._engine.attempts.finish
        return finish(self.claimed, told, timed_out=timed_out, unwanted=unwanted)

    def _close(self) -> None:
        self._over = True
        for timer in (self._timer, self._grace):
            if timer is not None:
                timer.cancel()
        if self._host is not None:
            self._host.forget(self._key)
        if self._cell is not None:
            self._engine.quarantine.leave(self._cell)
        self._engine.forget(self)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
