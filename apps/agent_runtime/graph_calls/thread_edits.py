"""Edits: changes of a thread's state from outside of runs, such as `update_state`.

An edit holds no lock and no lease while the graph's code works on it. What the graph saves is kept
here until the graph is done, and then committed as one transaction, if nothing has happened on the
thread meanwhile and its time is not up. So an edit excludes runs and other edits without waiting
for anybody, a late or lost one writes nothing, and one that fails half-way leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

import hiredis
import psycopg

from apps.agent_runtime.db import edit_statements as statements
from apps.agent_runtime.db.database import TRANSIENT, patiently
from apps.agent_runtime.db.write_batch import STATE_UNKNOWN
from apps.agent_runtime.graph_calls.call_session import CallSession, Question, Reply, failure
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_server.messaging.messages import EDIT_REFUSED, THREAD_BUSY, THREAD_GONE
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.streaming import thread_notices
from apps.core.json import dumps, loads, storable
from apps.graph_host.wire import Frame

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine

logger = logging.getLogger(__name__)

METHODS = frozenset({"update_state", "supersteps", "mirror"})
TRIES = 6
MOST_BYTES = 256 * 1024 * 1024
"""What one edit may save."""


_turns: WeakValueDictionary[tuple[int, UUID | None], asyncio.Lock] = WeakValueDictionary()


class Fence(NamedTuple):
    """A thread as it was when an edit began."""

    runs_received: int
    edits: int
    deadline: datetime
    """By the database's clock."""
    is_busy: bool


async def edit(engine: Engine, host: GraphHost, question: Question, seconds: float) -> Reply:
    """Have the graph edit its thread, after the edits of the thread that this worker has already.

    Begins again when somebody else was faster. `TimeoutError` when its turn does not come in time.
    """
    place = id(engine), question.thread
    turn = _turns.get(place)
    if turn is None:
        turn = _turns[place] = asyncio.Lock()
    deadline = asyncio.get_running_loop().time() + seconds
    async with asyncio.timeout(seconds):
        await turn.acquire()
    try:
        return await _edit(engine, host, question, deadline)
    finally:
        turn.release()


async def _edit(engine: Engine, host: GraphHost, question: Question, deadline: float) -> Reply:
    loop = asyncio.get_running_loop()
    for _ in range(TRIES):
        left = deadline - loop.time()
        place = [left, question.thread, question.thread_id]
        rows = await engine.database.rows(statements.EDIT_BEGINS, place)
        if not rows:
            return Reply(False, failure(THREAD_GONE, "The thread is gone."))
        fence = Fence(*rows[0])
        if fence.is_busy:
            return Reply(False, failure(THREAD_BUSY, "The thread is busy."))
        session = EditSession(engine, host, question)
        reply = await session.ask(left)
        if not reply.done:
            return reply
        try:
            if await patiently(functools.partial(session.commit, fence), seconds=left):
                await session.announce()
                return reply
        except TRANSIENT:
            return Reply(False, failure("DatabaseAway", "The platform could not store it now."))
        except psycopg.DataError as error:
            return Reply(False, failure(EDIT_REFUSED, f"It cannot be stored: {error}"))
        except psycopg.Error:
            logger.exception("An edit could not be stored.")
            return Reply(False, failure("DatabaseError", "The platform could not store it."))
    return Reply(False, failure(THREAD_BUSY, "The thread is busy."))


class EditSession(CallSession):
    """One try of an edit, while its host works on it."""

    def __init__(self, engine: Engine, host: GraphHost, question: Question) -> None:
        super().__init__(engine, host, question)
        self._checkpoints: list[tuple[Any, ...]] = []
        self._blobs: list[tuple[Any, ...]] = []
        self._writes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._bytes = 0
        self._mirror: list[Any] = ["idle", None, STATE_UNKNOWN, None]

    def take(self, frame: Frame) -> None:
        kind, _, number, *rest = frame
        try:
            if kind == "put":
                self._put(*rest)
                self._answer(number, True, None)
            elif kind == "writes":
                self._put_writes(*rest)
                self._answer(number, True, None)
            elif kind == "result":
                self._result(*rest)
            else:
                super().take(frame)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            # The host runs hostile code: a frame that makes no sense is the edit's own misfortune.
            self._refuse(f"malformed `{kind}`: {error}")

    def _refuse(self, reason: str) -> None:
        self._settle(Reply(False, failure(EDIT_REFUSED, reason)))

    def _put(  # noqa: PLR0917  (the order of the frame)
        self,
        thread_id: Any,
        namespace: str,
        id_: str,
        parent_id: str | None,
        kind: str,
        blob: bytes,
        metadata: bytes,
        versions: list[Any],
        blobs: list[Any],
    ) -> None:
        self._must_be_own(thread_id)
        parent = UUID(parent_id) if parent_id else None
        described = storable(bytes(metadata)).decode()
        row = (str(namespace), UUID(id_), parent, str(kind), bytes(blob), described)
        self._checkpoints.append((*row, dumps(dict(versions)).decode()))
        rows = [(str(namespace), str(c), str(v), str(k), bytes(b)) for c, v, k, b in blobs]
        self._blobs += rows
        self._grows(len(blob) + len(metadata) + sum(len(row[-1]) for row in rows))

    def _put_writes(self, thread_id: Any, namespace: str, id_: str, rows: list[Any]) -> None:
        self._must_be_own(thread_id)
        for task, index, channel, kind, blob, path in rows:
            place = (str(namespace), UUID(id_), str(task), str(path), int(index))
            if index < 0 or place not in self._writes:
                self._writes[place] = (*place, str(channel), str(kind), bytes(blob))
            self._grows(len(blob))

    def _must_be_own(self, thread_id: Any) -> None:
        if thread_id != self._question.thread_id:
            raise ValueError("An edit is about one thread only.")

    def _grows(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise ValueError("An edit may not save so much.")

    def _result(self, done: Any, body: bytes, mirror: dict[str, Any] | None = None) -> None:
        if not done:
            self._settle(Reply(False, dumps({"error": EDIT_REFUSED, "message": _reason(body)})))
            return
        if mirror is not None:
            values = storable(bytes(mirror["values"]))
            state = b'{"values":' + values + b"," + storable(bytes(mirror["state"]))[1:]
            self._mirror = [
                "interrupted" if mirror["unfinished"] else "idle",
                values.decode(),
                state.decode(),
                storable(bytes(mirror["interrupts"])).decode(),
            ]
        self._settle(Reply(True, storable(bytes(body))))

    # The end

    async def commit(self, fence: Fence) -> bool:
        """Write what the graph made; False, and nothing is written, if it comes too late."""
        thread = self._question.thread
        mine = [row[1] for row in self._checkpoints]
        async with self._engine.database.transaction() as connection:

            async def run(statement: str, *parameters: Any) -> Any:
                return await connection.execute(statement, parameters, prepare=True, binary=True)

            seen = [fence.runs_received, fence.edits, fence.deadline]
            held = await run(statements.EDIT_HOLDS, thread, *seen)
            if await held.fetchone() is None:
                # An earlier try of this commit may have come through, only its answer did not.
                known = await run(statements.EDIT_IS_KNOWN, thread, mine)
                return bool(mine) and await known.fetchone() is not None
            if self._blobs:
                await run(statements.EDIT_BLOBS, thread, *_columns(self._blobs))
            if self._checkpoints:
                await run(statements.EDIT_CHECKPOINTS, thread, *_columns(self._checkpoints))
            if self._writes:
                await run(statements.EDIT_WRITES, thread, *_columns([*self._writes.values()]))
            await run(statements.EDIT_ENDS, *self._mirror, thread)
        return True

    async def announce(self) -> None:
        """Tell those who read along with the thread; a nicety."""
        thread, state = self._question.thread, self._mirror[2]
        if thread is not None and state != STATE_UNKNOWN:
            notice = thread_notices.state_updated(thread, state.encode())
            with contextlib.suppress(RedisLost, hiredis.ReplyError):
                await self._engine.redis.run(notice)


def _columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def _reason(body: bytes) -> str:
    """What the graph said, for who asked: the class of an error only where it tells something."""
    reason = loads(body)
    name, message = str(reason["error"]), str(reason["message"])
    return message if name in _PLAIN else f"{name}: {message}"


_PLAIN = frozenset({"InvalidUpdateError", "ProjectError"})
