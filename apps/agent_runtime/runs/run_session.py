"""One attempt of a run on its graph host: handles the host's frames until the attempt ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.store_operations import StoreExecutor, store_owner
from apps.agent_runtime.db.write_batch import (
    CheckpointEntry,
    ClaimedRun,
    FencingToken,
    RunRelease,
    StaleToken,
    TaskWritesEntry,
)
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_runtime.hosts.isolation import IsolatedHost, IsolatedHostPool
from apps.agent_runtime.hosts.request_tasks import RequestTasks
from apps.agent_runtime.runs.event_publisher import EventPublisher
from apps.agent_runtime.runs.pending_writes import PendingWrites
from apps.agent_runtime.runs.run_completion import RunCompletion
from apps.agent_runtime.runs.run_result import HOST_FIELDS
from apps.agent_server.attempt_traces import build_trace_id
from apps.core.json import dumps, storable
from apps.graph_host.wire import MALFORMED, Frame, as_bytes

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""Time that the agent's code gets to handle a cancellation."""
MAX_STOPPING_BYTES = 1024 * 1024
"""Events after a cancellation: those that were on their way, and the last ones of the agent's code.

The rest of a flood is dropped.
"""

_FOREIGN_THREAD = "A run may read and write its own thread only."


@dataclass(slots=True, frozen=True)
class SessionServices:
    """The parts of an engine that all its sessions use."""

    writer: GroupCommitWriter
    publisher: EventPublisher
    pending_writes: PendingWrites
    checkpoints: CheckpointReader
    store: StoreExecutor
    completion: RunCompletion
    isolated_hosts: IsolatedHostPool
    on_closed: Callable[[RunSession], None]
    on_stale: Callable[[FencingToken], None]


class RunSession:
    """The execution of one claimed run on one host."""

    def __init__(self, services: SessionServices, run: ClaimedRun, head: list[Any] | None) -> None:
        """`head` is the thread's newest checkpoint."""
        self._services = services
        self.run = run
        self._head = head
        self._thread_id = str(run.thread_id)
        self._host: GraphHost | None = None
        self._isolated_host: IsolatedHost | None = None
        self._key = 0
        self._is_over = False
        self._timed_out = False
        self._requests = RequestTasks()
        self._is_drain_requested = False
        self._time_limit: asyncio.TimerHandle | None = None
        self._stop_limit: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._stopping_bytes = 0
        self._is_rollback = False
        self._handlers: dict[str, Callable[[int, list[Any]], None]] = {
            "events": self._on_events,
            "put": self._on_put,
            "writes": self._on_writes,
            "get": self._on_get,
            "list": self._on_list,
            "thread": self._on_thread,
            "store": self._on_store,
            "done": self._on_done,
        }

    # Called by the engine

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def host(self) -> GraphHost | None:
        """The host that executes the run; None before its start."""
        return self._host

    def start(
        self, host: GraphHost, limit_seconds: float, isolated_host: IsolatedHost | None = None
    ) -> None:
        """Send the run to its host."""
        run = self.run
        self._isolated_host = isolated_host
        self._host = host
        self._key = host.open_session(self)
        start: dict[str, Any] = {
            "run_id": str(run.run_id),
            "attempt": run.attempt,
            "trace_id": str(build_trace_id(run.run_id, run.attempt)),
            "thread_id": self._thread_id,
            "graph_id": run.graph_id,
            "assistant_id": str(run.assistant_id),
            "metadata": json.loads(run.metadata),
            "kwargs": run.kwargs.encode(),
            "head": self._head,
        }
        self._head = None
        self._time_limit = asyncio.get_running_loop().call_later(limit_seconds, self._on_timeout)
        try:
            host.link.send(("start", self._key, start))
        except (ValueError, TypeError, OverflowError) as error:  # msgpack cannot encode it
            self.fail(type(error).__name__, str(error))

    def cancel(self, action: str) -> None:
        """Stop the run; `action` is `interrupt`, `rollback` or `timeout`.

        The run ends after `STOP_SECONDS` even if the agent's code does not stop; later frames are
        ignored.
        """
        if self._is_over or self._is_stopping:
            return
        self._is_stopping = True
        self._is_rollback = action == "rollback"
        if self._host is None:
            self._end({"status": "cancelled", "is_state_unknown": self.run.attempt > 1})
            return
        self._host.link.send(("cancel", self._key, action))
        self._stop_limit = asyncio.get_running_loop().call_later(STOP_SECONDS, self._force_finish)

    def _force_finish(self) -> None:
        if not self._is_over:
            self._end({"status": "cancelled", "is_state_unknown": True})

    def drain(self) -> None:
        """Ask the host to stop the run before its next step, so that another worker resumes it."""
        if self._host is not None and not self._is_over:
            self._is_drain_requested = True
            self._host.link.send(("drain", self._key))

    def abandon(self, reason: str) -> None:
        """Stop the run without writing anything: another attempt owns it."""
        if self._is_over:
            return
        logger.warning("Run %s is abandoned: %s", self.run.run_id, reason)
        if self._host is not None:
            self._host.link.send(("cancel", self._key, "lost"))
        self._close()
        self._services.publisher.discard(self.run)

    def release(self) -> None:
        """Stop the run and return it to the queue at once."""
        if not self._is_over:
            if self._host is not None:
                self._host.link.send(("cancel", self._key, "lost"))
            self._close()
            self._return_to_queue()

    def _return_to_queue(self) -> None:
        run = self.run
        self._services.publisher.discard(run)
        release = RunRelease(run.token, isolation_group_size=run.isolation_group_size)
        self._services.writer.put(release, urgent=True)

    def fail(self, name: str, message: str) -> None:
        """End the run with an error of the platform."""
        if not self._is_over:
            is_state_unknown = self.run.attempt > 1
            error = {"error": name, "message": message}
            self._end({"status": "error", "error": error, "is_state_unknown": is_state_unknown})

    # Called by the host

    def on_frame(self, frame: Frame) -> None:
        kind, _, number, *fields = frame
        handle = self._handlers.get(kind)
        if handle is None or self._is_over:
            return
        try:
            handle(number, fields)
        except MALFORMED as error:
            # The host runs untrusted code, so a malformed frame affects its own run only.
            logger.info("Run %s sent a malformed `%s` frame: %s", self.run.run_id, kind, error)
            if number:
                self._answer(number, False, f"malformed `{kind}`: {error}")

    def on_host_exit(self, reason: str) -> None:
        if self._is_over:
            return
        runs_on_host = self._host.sessions_at_exit if self._host is not None else 1
        self._close()
        if self._is_stopping:
            outcome = {"status": "cancelled", "is_state_unknown": True, "is_unreported": True}
            self._spawn(self._finish(outcome))
        else:
            completion = self._services.completion
            self._spawn(completion.retry_after_host_exit(self.run, reason, runs_on_host))

    def _on_events(self, _: int, fields: list[Any]) -> None:
        events = [(str(name), as_bytes(data)) for name, data in fields[0]]
        size = sum(len(data) for _, data in events)
        if self._is_stopping:
            self._stopping_bytes += size
            if self._stopping_bytes > MAX_STOPPING_BYTES:
                return
        publisher = self._services.publisher
        if not publisher.publish(self.run, events) and self._host is not None:
            self._host.pause_until(publisher.wait_writable)
        self._limit_pending(size)

    def _limit_pending(self, size: int) -> None:
        """Read no more of the host while its organization has much to be written."""
        pending, organization_id = self._services.pending_writes, self.run.organization_id
        if pending.add(organization_id, size) and self._host is not None:
            self._host.pause_until(partial(pending.wait, organization_id))

    def _on_put(self, number: int, fields: list[Any]) -> None:
        thread_id, namespace, id_, parent_id, kind, blob, metadata, versions, blobs = fields
        self._require_own_thread(thread_id)
        rows = [(str(c), str(v), str(k), as_bytes(b)) for c, v, k, b in blobs]
        entry = CheckpointEntry(
            self.run.token,
            str(namespace),
            UUID(id_),
            UUID(parent_id) if parent_id else None,
            str(kind),
            as_bytes(blob),
            storable(metadata).decode(),
            dumps(dict(versions)).decode(),
            rows,
            len(blob) + len(metadata) + sum(len(row[3]) for row in rows),
        )
        self._write(number, entry)

    def _on_writes(self, number: int, fields: list[Any]) -> None:
        thread_id, namespace, id_, writes = fields
        self._require_own_thread(thread_id)
        rows = [
            (str(task), int(index), str(channel), str(kind), as_bytes(blob), str(path))
            for task, index, channel, kind, blob, path in writes
        ]
        size = sum(len(row[4]) for row in rows)
        entry = TaskWritesEntry(self.run.token, str(namespace), UUID(id_), rows, size)
        self._write(number, entry)

    def _write(self, number: int, entry: CheckpointEntry | TaskWritesEntry) -> None:
        writer = self._services.writer
        if not number:
            writer.put(entry)
        else:
            self._spawn(self._write_and_answer(number, entry))
        if writer.is_full and self._host is not None:
            self._host.pause_until(writer.wait_writable)
        self._limit_pending(entry.size)

    async def _write_and_answer(
        self, number: int, entry: CheckpointEntry | TaskWritesEntry
    ) -> None:
        try:
            await self._services.writer.write(entry)
        except StaleToken:
            self._answer(number, False, "This run now belongs to another attempt.")
        else:
            self._answer(number, True, None)

    def _on_get(self, number: int, fields: list[Any]) -> None:
        thread_id, namespace, checkpoint_id = fields
        self._require_own_thread(thread_id)
        read = self._services.checkpoints.get(self.run.thread, str(namespace), checkpoint_id)
        self._spawn(self._read_and_answer(number, read))

    def _on_list(self, number: int, fields: list[Any]) -> None:
        thread_id, *filters = fields
        self._require_own_thread(thread_id)
        read = self._services.checkpoints.list(self.run.thread, *filters)
        self._spawn(self._read_and_answer(number, read))

    async def _read_and_answer(self, number: int, read: Coroutine[Any, Any, Any]) -> None:
        try:
            # The run may read a checkpoint that is still in the group commit.
            await self._services.writer.flush()
            self._answer(number, True, await read)
        except Exception as error:
            logger.exception("Reading a checkpoint failed.")
            self._answer(
                number, False, f"The platform could not read the checkpoint: {type(error).__name__}"
            )

    def _on_thread(self, number: int, _: list[Any]) -> None:
        self._answer(number, False, _FOREIGN_THREAD)

    def _on_store(self, number: int, fields: list[Any]) -> None:
        self._spawn(self._use_store(number, fields[0]))

    async def _use_store(self, number: int, operations: Any) -> None:
        run = self.run
        try:
            await self._services.store.execute(
                store_owner(run),
                operations,
                run.token,
                lambda succeeded, value: self._answer(number, succeeded, value),
            )
        except StaleToken:
            self._services.on_stale(run.token)

    def _on_done(self, _: int, fields: list[Any]) -> None:
        if self._host is not None:
            self._host.note_ended_run(self.run.token)
        outcome = {name: value for name, value in fields[0].items() if name in HOST_FIELDS}
        if outcome.get("status") == "drained" and not self._is_drain_requested:
            # Otherwise the run would return to the queue forever.
            raise ValueError("the run was not asked to stop")
        self._end(outcome)

    def _require_own_thread(self, thread_id: Any) -> None:
        if thread_id != self._thread_id:
            raise ValueError(_FOREIGN_THREAD)

    def _answer(self, number: int, succeeded: bool, value: Any) -> None:  # noqa: FBT001  (a frame's field)
        if self._host is None:
            return
        try:
            self._host.link.send(("answer", number, succeeded, value))
        except ValueError as error:
            self._host.link.send(("answer", number, False, str(error)))

    # End of the attempt

    def _on_timeout(self) -> None:
        self._timed_out = True
        self.cancel("timeout")

    def _end(self, outcome: dict[str, Any]) -> None:
        self._close()
        if outcome.get("status") == "drained":
            self._return_to_queue()
        else:
            self._spawn(self._finish(outcome))

    def _finish(self, outcome: dict[str, Any]) -> Coroutine[Any, Any, None]:
        return self._services.completion.finish(
            self.run, outcome, timed_out=self._timed_out, rollback=self._is_rollback
        )

    def _close(self) -> None:
        self._is_over = True
        for timer in (self._time_limit, self._stop_limit):
            if timer is not None:
                timer.cancel()
        if self._host is not None:
            self._host.close_session(self._key)
        if self._isolated_host is not None:
            self._services.isolated_hosts.release(self._isolated_host)
        self._services.on_closed(self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._requests.spawn(work, self._host)
