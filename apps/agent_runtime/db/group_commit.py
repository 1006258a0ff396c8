"""Group commit: one connection writes for all runs of a worker, many entries per transaction.

A transaction contains all entries that are queued when it starts; entries that arrive meanwhile
wait for the next one. Its order is: checkpoints, run ends, rollbacks, releases, and claims of the
threads' next runs. Every write is fenced by the run's token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.checkpoint_reader import checkpoint_to_frame
from apps.agent_runtime.db.connection_pool import TRANSIENT, Connection, connect
from apps.agent_runtime.db.write_batch import (
    ClaimedRun,
    Entry,
    FencingToken,
    RollbackRequested,
    RunEnd,
    RunRelease,
    StaleToken,
    WriteBatch,
)
from apps.agent_runtime.run_slots import UNLIMITED, FreeSlots, SlotOwner
from apps.agent_server import run_state_sql
from apps.agent_server.a2a import statements as a2a
from apps.agent_server.run_state_sql import End, SqlBatch
from apps.agent_server.webhooks import delivery_worker
from apps.agent_server.webhooks import statements as webhooks
from apps.webhooks.tasks import delivery_worker as push_worker

logger = logging.getLogger(__name__)

MAX_DELAY_SECONDS = 0.002
"""Delay of entries without a waiter, so that a short run needs one transaction."""
HIGH_WATER_BYTES = 32 * 1024 * 1024
IMMEDIATE_BYTES = 1024 * 1024
MAX_RETRY_PAUSE_SECONDS = 1.0

Heads = dict[UUID, list[Any]]


class GroupCommitWriter:
    """Writes for the runs of one worker process.

    `on_claimed(run, head)` is called for each run that a commit assigned to this worker, with the
    thread's newest checkpoint; `on_stale(token)` for each token that PostgreSQL rejected.
    `known_runs()` returns the runs that this worker executes or completes, `free_slots()` how many
    it may start. `on_no_slot(thread, owner)` is called for each thread with a run that could not be
    claimed because its organization or deployment has no free slot.
    """

    def __init__(
        self,
        owner: str,
        lease_seconds: float,
        *,
        on_claimed: Callable[[ClaimedRun, list[Any] | None], None],
        on_stale: Callable[[FencingToken], None],
        known_runs: Callable[[], Iterable[UUID]] = tuple,
        free_slots: Callable[[], FreeSlots] = lambda: UNLIMITED,
        on_no_slot: Callable[[UUID, SlotOwner], None] = lambda *_: None,
    ) -> None:
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._on_claimed = on_claimed
        self._on_stale = on_stale
        self._known_runs = known_runs
        self._free_slots = free_slots
        self._on_no_slot = on_no_slot
        self._next = WriteBatch()
        self._current: WriteBatch | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_closing = False
        self._untold: set[UUID] = set()
        """Started runs of A2A tasks whose clients are not notified yet."""
        self.accepts_claims = True
        self._task = self._loop.create_task(self._commit_batches(), name="group-commit")

    # Queue

    def put(self, entry: Entry, *, urgent: bool = False) -> None:
        """Queue an entry; it is committed within milliseconds, at once if `urgent`."""
        self._next.add(entry)
        if self._next.size > HIGH_WATER_BYTES:
            self._writable.clear()
        if urgent or entry.committed is not None or self._next.size > IMMEDIATE_BYTES:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(MAX_DELAY_SECONDS, self._wake.set)

    async def write(self, entry: Entry) -> None:
        """Queue an entry and wait for its commit.

        Raises `StaleToken`, or `RollbackRequested` for the end of a run that must be rolled back.
        """
        entry.committed = self._loop.create_future()
        self.put(entry)
        await entry.committed

    def claim(self, threads: Iterable[UUID]) -> None:
        """Claim the next runnable run of each thread, if there is one."""
        if self.accepts_claims:
            self._next.claims.update(threads)
            self._wake.set()

    @property
    def claim_count(self) -> int:
        """Number of threads with a claim in progress."""
        return len(self._next.claims) + (len(self._current.claims) if self._current else 0)

    @property
    def writing(self) -> set[UUID]:
        """Runs with uncommitted entries."""
        batches = [self._next, *([self._current] if self._current else [])]
        return {entry.token.run_id for batch in batches for entry in batch.entries}

    @property
    def is_full(self) -> bool:
        return not self._writable.is_set()

    async def flush(self) -> None:
        """Wait until all queued entries are committed."""
        batch = self._next or self._current
        if batch is None:
            return
        waiter = self._loop.create_future()
        batch.flush_waiters.append(waiter)
        self._wake.set()
        await waiter

    async def wait_writable(self) -> None:
        """Wait until the queue is below its high-water mark."""
        await self._writable.wait()

    async def close(self) -> None:
        """Commit all queued entries, then stop."""
        self._is_closing = True
        self._wake.set()
        await self._task
        if self._connection is not None:
            await self._connection.close()

    # Commit

    async def _commit_batches(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch, self._next = self._next, WriteBatch()
            self._writable.set()
            if not self.accepts_claims:
                batch.claims.clear()
            batch.drop_unread_checkpoints()
            if batch:
                self._current = batch
                await self._commit(batch)
                self._current = None
            # Also for a batch whose only entries, claims, were dropped.
            for waiter in batch.flush_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if self._is_closing and not batch:
                return
            if self._is_closing:
                self._wake.set()

    async def _commit(self, batch: WriteBatch) -> None:
        """Commit a batch; retry while PostgreSQL is unavailable."""
        pause, is_retry = 0.02, False
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect()
                await self._execute_batch(self._connection, batch, is_retry=is_retry)
            except TRANSIENT as error:
                logger.warning("Committing a batch failed: %s", str(error).strip())
                await self._disconnect()
                # The commit may have succeeded although its answer was lost.
                is_retry = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_RETRY_PAUSE_SECONDS)
            except Exception:
                await self._disconnect()
                if await self._commit_run_by_run(batch):
                    return
                logger.exception("PostgreSQL rejects an entry; its run is released.")
                self._fail_batch(batch)
                return
            else:
                return

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _commit_run_by_run(self, batch: WriteBatch) -> bool:
        """Isolate an entry that PostgreSQL rejects; False if the batch has one run only."""
        tokens = batch.tokens
        if len(tokens) + len(batch.claims) < 2:
            return False
        for token in tokens:
            run_batch = WriteBatch()
            for entry in batch.entries:
                if entry.token == token:
                    run_batch.add(entry)
            await self._commit(run_batch)
        for thread in batch.claims:
            await self._commit(WriteBatch(claims={thread}))
        return True

    def _fail_batch(self, batch: WriteBatch) -> None:
        for entry in batch.entries:
            _resolve_waiter(entry, StaleToken())
        releases = {entry.token for entry in batch.releases}
        for token in batch.tokens:
            self._on_stale(token)
            if token not in releases:
                self.put(RunRelease(token, crashed=True))

    async def _execute_batch(
        self, connection: Connection, batch: WriteBatch, *, is_retry: bool
    ) -> None:
        tokens = batch.tokens
        threads, claims = batch.threads, sorted(batch.claims)
        # In autocommit mode a pipeline is one implicit transaction.

        async def run(statement: str, parameters: Iterable[Any]) -> Any:
            return await connection.execute(
                statement.encode(), list(parameters), prepare=True, binary=True
            )

        async with connection.pipeline():
            if threads:
                await run(statements.LOCK_THREADS, [threads])
            locked = None
            if tokens:
                locked = await run(statements.LOCK_RUNS, _columns(tokens, 2))
            if batch.checkpoints:
                await run(statements.UPSERT_CHECKPOINTS, _checkpoint_columns(batch))
                blobs = _blob_rows(batch)
                if blobs:
                    await run(statements.INSERT_BLOBS, _columns(blobs, 7))
            if batch.task_writes:
                await run(statements.UPSERT_WRITES, _columns(_write_rows(batch), 10))
            if batch.stream_chunks:
                for statement, columns in statements.store_stream_chunks(batch.stream_chunks):
                    await run(statement, columns)
            # Before the ends, which close the tasks of these runs.
            untold = sorted(self._untold)
            if untold:
                await run(a2a.ADD_PUSHES_OF_STARTED, [untold])
            ended_rows = None
            if batch.run_ends:
                ended_rows = await run(
                    run_state_sql.END_RUNS, run_state_sql.transpose(_run_ends(batch))
                )
            task_runs = [entry.token.run_id for entry in batch.run_ends if entry.has_task]
            if task_runs:
                await run(a2a.END_TASKS, [task_runs])
                await run(a2a.ADD_PUSHES_OF_ENDED, [task_runs])
            webhook_runs = [entry.token.run_id for entry in batch.run_ends if entry.has_webhook]
            if webhook_runs:
                await run(webhooks.ADD_DUE, [webhook_runs])
            if unreported := batch.unreported:
                await run(run_state_sql.ADD_UNREPORTED, _columns(unreported, 2))
            if batch.rollbacks:
                for statement, parameters in _rollback_statements(batch):
                    await run(statement, parameters)
            if batch.releases:
                await run(statements.RELEASE, _columns(_release_rows(batch), 5))
            claimed = heads = unclaimed = None
            if claims and is_retry:
                await run(
                    statements.UNDO_UNANSWERED_CLAIMS,
                    [claims, self._owner, self._list_known_runs(batch)],
                )
            if claims:
                free_slots = self._free_slots()
                claimed = await run(
                    statements.CLAIM, [claims, *free_slots, self._owner, self._lease_seconds]
                )
                heads = await run(statements.HEADS, [claims])
                if free_slots.may_refuse(len(claims)):
                    unclaimed = await run(statements.UNCLAIMED, [claims])
        self._untold.difference_update(untold)
        valid = (
            {FencingToken(*row) for row in await locked.fetchall()} if locked is not None else set()
        )
        ended_ids = (
            {row[0] for row in await ended_rows.fetchall()} if ended_rows is not None else set()
        )
        to_roll_back = {e.token for e in batch.run_ends if e.token in valid} - {
            token for token in valid if token.run_id in ended_ids
        }
        if is_retry and valid != set(tokens):
            valid |= await self._find_ended_tokens(connection, batch)
        runs = [ClaimedRun(*row) for row in await claimed.fetchall()] if claimed is not None else []
        head_by_thread: Heads = {}
        if runs and heads is not None:
            head_by_thread = {row[0]: checkpoint_to_frame(row) for row in await heads.fetchall()}
        if webhook_runs:
            delivery_worker.wake()
        if task_runs or untold:
            push_worker.wake()
        self._notify(batch, valid, to_roll_back, runs, head_by_thread)
        started = [item.run_id for item in runs if a2a.TASK_MARKER in item.metadata]
        if started:
            await self._tell_started(connection, started)
        if unclaimed is not None:
            for thread, organization_id, deployment_id in await unclaimed.fetchall():
                self._on_no_slot(thread, SlotOwner(organization_id, deployment_id))

    async def _tell_started(self, connection: Connection, run_ids: list[UUID]) -> None:
        """Notify clients of A2A of started tasks, in a transaction after that of the claims.

        The claims have to answer first. If this fails, the next batch does it: no run ends before.
        If the process dies, the runs are claimed again, and that claim notifies.
        """
        try:
            await connection.execute(
                a2a.ADD_PUSHES_OF_STARTED.encode(), [run_ids], prepare=True, binary=True
            )
        except TRANSIENT as error:
            logger.warning("Clients of A2A are notified of started tasks later: %s", error)
            self._untold.update(run_ids)

    def _list_known_runs(self, batch: WriteBatch) -> list[UUID]:
        """Return the runs that this worker knows; other claims have lost their answer."""
        batch_run_ids = {entry.token.run_id for entry in batch.entries}
        return sorted(batch_run_ids | self.writing | set(self._known_runs()))

    async def _find_ended_tokens(
        self, connection: Connection, batch: WriteBatch
    ) -> set[FencingToken]:
        """Return the tokens whose run end was committed by an earlier try of this batch."""
        final_entries: list[Entry] = [*batch.run_ends, *batch.rollbacks, *batch.releases]
        final_tokens = [entry.token for entry in final_entries]
        cursor = await connection.execute(
            statements.STILL_OPEN, [[token.run_id for token in final_tokens]], binary=True
        )
        still_open = {row[0] for row in await cursor.fetchall()}
        return {token for token in final_tokens if token.run_id not in still_open}

    def _notify(
        self,
        batch: WriteBatch,
        valid: set[FencingToken],
        to_roll_back: set[FencingToken],
        runs: list[ClaimedRun],
        heads: Heads,
    ) -> None:
        for entry in batch.entries:
            if isinstance(entry, RunEnd) and entry.token in to_roll_back:
                _resolve_waiter(entry, RollbackRequested())
            else:
                _resolve_waiter(entry, None if entry.token in valid else StaleToken())
        for token in batch.tokens:
            if token not in valid:
                self._on_stale(token)
        for run in runs:
            self._on_claimed(run, heads.get(run.thread))


def _resolve_waiter(entry: Entry, error: Exception | None) -> None:
    if entry.committed is None or entry.committed.done():
        return
    if error is None:
        entry.committed.set_result(None)
    else:
        entry.committed.set_exception(error)


def _columns(rows: Iterable[Iterable[Any]], width: int) -> list[list[Any]]:
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]


def _checkpoint_columns(batch: WriteBatch) -> list[list[Any]]:
    # A statement may write a row once, so only the last version of a checkpoint is kept.
    last = {(entry.token, entry.namespace, entry.id): entry for entry in batch.checkpoints}
    return _columns(
        [
            (
                entry.token.run_id,
                entry.token.attempt,
                entry.namespace,
                entry.id,
                entry.parent_id,
                entry.kind,
                entry.blob,
                entry.metadata,
                entry.versions,
            )
            for entry in last.values()
        ],
        9,
    )


def _blob_rows(batch: WriteBatch) -> list[tuple[Any, ...]]:
    return [
        (*entry.token, entry.namespace, *blob)
        for entry in batch.checkpoints
        for blob in entry.blobs
    ]


def _write_rows(batch: WriteBatch) -> list[tuple[Any, ...]]:
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for entry in batch.task_writes:
        for task_id, index, channel, kind, blob, path in entry.rows:
            key = (entry.token, entry.namespace, entry.id, task_id, index)
            if index < 0 or key not in rows:
                rows[key] = (
                    *entry.token,
                    entry.namespace,
                    entry.id,
                    task_id,
                    path,
                    index,
                    channel,
                    kind,
                    blob,
                )
    return list(rows.values())


def _run_ends(batch: WriteBatch) -> list[End]:
    return [
        End(
            *entry.token,
            "running",
            entry.status,
            entry.error,
            entry.thread_status,
            entry.values,
            entry.state,
            entry.interrupts,
        )
        for entry in batch.run_ends
    ]


def _rollback_statements(batch: WriteBatch) -> SqlBatch:
    threads = sorted({entry.thread for entry in batch.rollbacks})
    return run_state_sql.roll_back_runs(
        threads, [(*entry.token, "running") for entry in batch.rollbacks]
    )


def _release_rows(batch: WriteBatch) -> list[tuple[Any, ...]]:
    return [(*e.token, e.crashed, e.isolation_group_size, e.delay_seconds) for e in batch.releases]
