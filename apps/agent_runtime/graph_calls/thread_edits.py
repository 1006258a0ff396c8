"""Thread edits: changes of a thread's state outside of runs, such as `update_state`.

An edit is optimistic: it holds no lock and no lease while the graph's code runs. The worker buffers
the graph's writes and commits them in one transaction, if the thread is unchanged since the start
and the deadline has not passed. So edits exclude runs and each other without waiting, and a failed
or late edit writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

import hiredis
import psycopg

from apps.agent_runtime.db import edit_statements as statements
from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.connection_pool import TRANSIENT, ConnectionPool, retry_transient
from apps.agent_runtime.db.store_operations import StoreExecutor
from apps.agent_runtime.db.write_batch import STATE_UNKNOWN
from apps.agent_runtime.graph_calls.call_session import (
    CallResult,
    CallSession,
    GraphCall,
    error_body,
)
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_server.messaging.messages import EDIT_REFUSED, THREAD_BUSY, THREAD_GONE
from apps.agent_server.messaging.redis_connection import RedisConnection, RedisLost
from apps.agent_server.streaming import streams
from apps.core.json import dumps, loads_small, storable
from apps.graph_host.wire import MALFORMED, Frame, as_bytes

logger = logging.getLogger(__name__)

METHODS = frozenset({"update_state", "supersteps", "mirror"})
MAX_ATTEMPTS = 6
MAX_EDIT_BYTES = 256 * 1024 * 1024
ROW_BYTES = 1024
"""Memory that a checkpoint or write takes besides its value."""


class EditFence(NamedTuple):
    """The thread's counters at the start of an edit; the commit requires the same values."""

    runs_received: int
    edits: int
    deadline: datetime
    """By the clock of PostgreSQL."""
    is_busy: bool


class ThreadEditor:
    """Executes the edits of one engine, one at a time per thread."""

    def __init__(
        self,
        pool: ConnectionPool,
        checkpoints: CheckpointReader,
        store: StoreExecutor,
        redis: RedisConnection,
    ) -> None:
        self._pool = pool
        self._checkpoints = checkpoints
        self._store = store
        self._redis = redis
        self._locks: WeakValueDictionary[UUID | None, asyncio.Lock] = WeakValueDictionary()

    async def edit(self, host: GraphHost, call: GraphCall, seconds: float) -> CallResult:
        """Let the graph edit its thread; retry if another edit was committed meanwhile.

        Raises `TimeoutError` if the earlier edits of the thread take longer than `seconds`.
        """
        lock = self._locks.get(call.thread)
        if lock is None:
            lock = self._locks[call.thread] = asyncio.Lock()
        deadline = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout(seconds):
            await lock.acquire()
        try:
            return await self._edit(host, call, deadline)
        finally:
            lock.release()

    async def _edit(self, host: GraphHost, call: GraphCall, deadline: float) -> CallResult:
        loop = asyncio.get_running_loop()
        for _ in range(MAX_ATTEMPTS):
            remaining = deadline - loop.time()
            rows = await self._pool.fetch_rows(
                statements.READ_FENCE, [remaining, call.thread, call.thread_id]
            )
            if not rows:
                return CallResult(False, error_body(THREAD_GONE, "The thread was deleted."))
            fence = EditFence(*rows[0])
            if fence.is_busy:
                return CallResult(False, error_body(THREAD_BUSY, "The thread is busy."))
            session = EditSession(host, call, self._checkpoints, self._store)
            result = await session.execute(remaining)
            if not result.succeeded:
                return result
            try:
                commit = functools.partial(session.commit, self._pool, fence)
                if await retry_transient(commit, seconds=remaining):
                    await session.notify_readers(self._redis)
                    return result
            except TRANSIENT:
                message = "The platform cannot reach its database now. Retry the edit."
                return CallResult(False, error_body("DatabaseAway", message))
            except psycopg.DataError as error:
                return CallResult(
                    False, error_body(EDIT_REFUSED, f"The edit cannot be stored: {error}")
                )
            except psycopg.Error:
                logger.exception("Storing an edit failed.")
                message = "The platform could not store the edit."
                return CallResult(False, error_body("DatabaseError", message))
        return CallResult(False, error_body(THREAD_BUSY, "The thread is busy."))


class EditSession(CallSession):
    """One attempt of an edit while its host executes it."""

    def __init__(
        self, host: GraphHost, call: GraphCall, checkpoints: CheckpointReader, store: StoreExecutor
    ) -> None:
        super().__init__(host, call, checkpoints, store)
        self._checkpoint_rows: list[tuple[Any, ...]] = []
        self._blobs: list[tuple[Any, ...]] = []
        self._writes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._bytes = 0
        self._thread_row: list[Any] = ["idle", None, STATE_UNKNOWN, None]

    def on_frame(self, frame: Frame) -> None:
        kind, _, number, *fields = frame
        try:
            if kind == "put":
                self._put(*fields)
                self._answer(number, True, None)
            elif kind == "writes":
                self._put_writes(*fields)
                self._answer(number, True, None)
            elif kind == "result":
                self._on_result(*fields)
            else:
                super().on_frame(frame)
        except MALFORMED as error:
            # The host runs untrusted code, so a malformed frame fails its own edit only.
            self._refuse(f"malformed `{kind}`: {error}")

    def _refuse(self, reason: str) -> None:
        self._set_result(CallResult(False, error_body(EDIT_REFUSED, reason)))

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
        self._require_own_thread(thread_id)
        parent = UUID(parent_id) if parent_id else None
        metadata_json = storable(as_bytes(metadata)).decode()
        row = (str(namespace), UUID(id_), parent, str(kind), as_bytes(blob), metadata_json)
        self._checkpoint_rows.append((*row, dumps(dict(versions)).decode()))
        rows = [(str(namespace), str(c), str(v), str(k), as_bytes(b)) for c, v, k, b in blobs]
        self._blobs += rows
        self._count_bytes(len(blob) + len(metadata) + sum(len(row[-1]) for row in rows))

    def _put_writes(self, thread_id: Any, namespace: str, id_: str, rows: list[Any]) -> None:
        self._require_own_thread(thread_id)
        for task, index, channel, kind, blob, path in rows:
            key = (str(namespace), UUID(id_), str(task), str(path), int(index))
            if index < 0 or key not in self._writes:
                self._writes[key] = (*key, str(channel), str(kind), as_bytes(blob))
            self._count_bytes(len(blob))

    def _require_own_thread(self, thread_id: Any) -> None:
        if thread_id != self._call.thread_id:
            raise ValueError("An edit may change its own thread only.")

    def _count_bytes(self, size: int) -> None:
        self._bytes += size + ROW_BYTES
        if self._bytes > MAX_EDIT_BYTES:
            raise ValueError(f"The edit writes more than {MAX_EDIT_BYTES} bytes.")

    def _on_result(self, succeeded: Any, body: bytes, mirror: dict[str, Any] | None = None) -> None:
        if not succeeded:
            self._set_result(
                CallResult(False, dumps({"error": EDIT_REFUSED, "message": _error_message(body)}))
            )
            return
        if mirror is not None:
            values = as_bytes(mirror["values"])
            state = b'{"values":' + values + b"," + as_bytes(mirror["state"])[1:]
            self._thread_row = [
                "interrupted" if mirror["unfinished"] else "idle",
                values.decode(),
                state.decode(),
                as_bytes(mirror["interrupts"]).decode(),
            ]
        self._set_result(CallResult(True, as_bytes(body)))

    # Commit

    async def commit(self, pool: ConnectionPool, fence: EditFence) -> bool:
        """Commit the writes; False if the thread changed or the deadline passed."""
        thread = self._call.thread
        own_ids = [row[1] for row in self._checkpoint_rows]
        async with pool.transaction() as connection:

            async def run(statement: str, *parameters: Any) -> Any:
                return await connection.execute(statement, parameters, prepare=True, binary=True)

            expected = [fence.runs_received, fence.edits, fence.deadline]
            locked_thread = await run(statements.LOCK_UNCHANGED_THREAD, thread, *expected)
            if await locked_thread.fetchone() is None:
                # An earlier try may have committed although its answer was lost.
                committed = await run(statements.FIND_CHECKPOINTS, thread, own_ids)
                return bool(own_ids) and await committed.fetchone() is not None
            if self._blobs:
                await run(statements.INSERT_BLOBS, thread, *_columns(self._blobs))
            if self._checkpoint_rows:
                await run(statements.INSERT_CHECKPOINTS, thread, *_columns(self._checkpoint_rows))
            if self._writes:
                await run(statements.UPSERT_WRITES, thread, *_columns([*self._writes.values()]))
            await run(statements.UPDATE_THREAD, *self._thread_row, thread)
        return True

    async def notify_readers(self, redis: RedisConnection) -> None:
        """Publish the new state to readers of the thread's stream; best effort."""
        thread, state = self._call.thread, self._thread_row[2]
        if thread is not None and state != STATE_UNKNOWN:
            notice = streams.publish_state_updated(thread, state.encode())
            with contextlib.suppress(RedisLost, hiredis.ReplyError):
                await redis.run(notice)


def _columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Transpose rows for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]


def _error_message(body: bytes) -> str:
    """Return the graph's error message; its class name is omitted if it adds nothing."""
    error = loads_small(body)
    name, message = str(error["error"]), str(error["message"])
    return message if name in _SELF_EXPLANATORY else f"{name}: {message}"


_SELF_EXPLANATORY = frozenset({"InvalidUpdateError", "ProjectError"})
