"""The one writer of a worker: whatever its runs have to store goes out in group commits.

Everything that is waiting when a transaction begins goes into it, of however many runs; what comes
meanwhile goes into the next. One transaction holds, in this order: the checkpoints of runs, their
ends, what is given back, and the claims of the threads' next runs. Every part is fenced by token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db import stream_statements as streamed
from apps.agent_runtime.db.database import TRANSIENT, Connection, connect
from apps.agent_runtime.db.write_batch import (
    Batch,
    Claimed,
    Ending,
    Entry,
    Release,
    Stale,
    Token,
    Unwanted,
    stored,
)
from apps.agent_server import run_state_sql
from apps.agent_server.run_state_sql import Deed, End
from apps.agent_server.webhooks import delivery_worker
from apps.agent_server.webhooks import statements as webhooks

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.002
"""How long a checkpoint that nobody waits for may wait for company: short runs end within."""
HIGH_WATER = 32 * 1024 * 1024
LONGEST_PAUSE_SECONDS = 1.0

Heads = dict[UUID, list[Any]]


class Ledger:
    """Writes for the runs of one worker process.

    `on_claimed(claimed, head)` is told of each run that a commit gave to this worker, with the
    thread's newest checkpoint; `on_stale(token)` of each token that turned out to be worthless.
    `held()` names the runs that it was told of and has not ended.
    """

    def __init__(
        self,
        owner: str,
        lease_seconds: float,
        *,
        on_claimed: Callable[[Claimed, list[Any] | None], None],
        on_stale: Callable[[Token], None],
        held: Callable[[], Iterable[UUID]] = tuple,
    ) -> None:
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._on_claimed = on_claimed
        self._on_stale = on_stale
        self._held = held
        self._next = Batch()
        self._current: Batch | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._relieved = asyncio.Event()
        self._relieved.set()
        self._closing = False
        self.claiming = True
        self._task = self._loop.create_task(self._work(), name="ledger")

    # Putting in

    def put(self, entry: Entry, *, urgent: bool = False) -> None:
        """Take an entry; it is committed within milliseconds, at once when `urgent`."""
        self._next.add(entry)
        if self._next.size > HIGH_WATER:
            self._relieved.clear()
        if urgent or entry.done is not None or self._next.size > 1024 * 1024:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(LINGER_SECONDS, self._wake.set)

    async def write(self, entry: Entry) -> None:
        """`put`, and return when it is committed.

        `Stale` when the token is worthless, `Unwanted` for an end where the run is to be undone.
        """
        entry.done = self._loop.create_future()
        self.put(entry)
        await entry.done

    def claim(self, threads: Iterable[UUID]) -> None:
        """Claim the next runnable run of each thread, where there is one."""
        if self.claiming:
            self._next.claims.update(threads)
            self._wake.set()

    @property
    def claims(self) -> int:
        """How many threads wait to have their next run claimed."""
        return len(self._next.claims) + (len(self._current.claims) if self._current else 0)

    @property
    def writing(self) -> set[UUID]:
        """The runs of which something is not committed yet."""
        batches = [self._next, *([self._current] if self._current else [])]
        return {entry.token.run_id for batch in batches for entry in batch.entries}

    @property
    def is_full(self) -> bool:
        return not self._relieved.is_set()

    async def settled(self) -> None:
        """Return when everything that was put in before is committed."""
        batch = self._next or self._current
        if batch is None:
            return
        waiter = self._loop.create_future()
        batch.settled.append(waiter)
        self._wake.set()
        await waiter

    async def relieved(self) -> None:
        """Return when less waits than this writer likes to hold."""
        await self._relieved.wait()

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing = True
        self._wake.set()
        await self._task
        if self._connection is not None:
            await self._connection.close()

    # Writing

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch, self._next = self._next, Batch()
            self._relieved.set()
            if not self.claiming:
                batch.claims.clear()
            batch.drop_what_nobody_reads()
            if batch:
                self._current = batch
                await self._commit(batch)
                self._current = None
                for waiter in batch.settled:
                    if not waiter.done():
                        waiter.set_result(None)
            elif self._closing:
                return
            if self._closing:
                self._wake.set()

    async def _commit(self, batch: Batch) -> None:
        """Write one batch, again and again while the server is away."""
        pause, again = 0.02, False
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect()
                await self._transaction(self._connection, batch, again=again)
            except TRANSIENT as error:
                logger.warning("The database did not take a batch: %s", str(error).strip())
                await self._hang_up()
                # It may have been committed all the same: whoever reads the answer must know.
                again = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            except Exception:
                await self._hang_up()
                if await self._divide(batch):
                    return
                logger.exception("An entry cannot be stored; its run is given up.")
                self._give_up(batch)
                return
            else:
                return

    async def _hang_up(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _divide(self, batch: Batch) -> bool:
        """Write a batch that holds something impossible run by run, so that only one run fails."""
        tokens = batch.tokens
        if len(tokens) + len(batch.claims) < 2:
            return False
        for token in tokens:
            part = Batch()
            for entry in batch.entries:
                if entry.token == token:
                    part.add(entry)
            await self._commit(part)
        for thread in batch.claims:
            await self._commit(Batch(claims={thread}))
        return True

    def _give_up(self, batch: Batch) -> None:
        for entry in batch.entries:
            _settle(entry, Stale())
        releases = {entry.token for entry in batch.releases}
        for token in batch.tokens:
            self._on_stale(token)
            if token not in releases:
                self.put(Release(token, lost=True))

    async def _transaction(self, connection: Connection, batch: Batch, *, again: bool) -> None:
        tokens = batch.tokens
        threads, claims = batch.threads, sorted(batch.claims)
        # Without a BEGIN a pipeline is one transaction, from its first statement to its end.
        async with connection.pipeline():
            run = _Runner(connection)
            if threads:
                await run(statements.LOCK_THREADS, [threads])
            held = None
            if tokens:
                held = await run(statements.LOCK_RUNS, _columns(tokens, 2))
            if batch.puts:
                await run(statements.PUT_CHECKPOINTS, _put_columns(batch))
                blobs = _blob_rows(batch)
                if blobs:
                    await run(statements.PUT_BLOBS, _columns(blobs, 7))
            if batch.writes:
                await run(statements.PUT_WRITES, _columns(_write_rows(batch), 10))
            if batch.said:
                for statement, columns in streamed.deed(batch.said):
                    await run(statement, columns)
            ended = None
            if batch.endings:
                ended = await run(run_state_sql.END, run_state_sql.columns(_ends(batch)))
            told = [entry.token.run_id for entry in batch.endings if entry.has_webhook]
            if told:
                await run(webhooks.ADD_DUE, [told])
            if batch.undoings:
                for statement, parameters in _undoing(batch):
                    await run(statement, parameters)
            if batch.releases:
                await run(statements.RELEASE, _columns(_release_rows(batch), 5))
            claimed = heads = None
            if claims and again:
                await run(statements.UNHEARD_CLAIMS, [claims, self._owner, self._known(batch)])
            if claims:
                claimed = await run(statements.CLAIM, [claims, self._owner, self._lease_seconds])
                heads = await run(statements.HEADS, [claims])
        good = {Token(*row) for row in await held.fetchall()} if held is not None else set()
        ended_ids = {row[0] for row in await ended.fetchall()} if ended is not None else set()
        unwanted = {e.token for e in batch.endings if e.token in good} - {
            token for token in good if token.run_id in ended_ids
        }
        if again and good != set(tokens):
            good |= await self._already_ended(connection, batch)
        runs = [Claimed(*row) for row in await claimed.fetchall()] if claimed is not None else []
        newest: Heads = {}
        if runs and heads is not None:
            newest = {row[0]: stored(row) for row in await heads.fetchall()}
        if told:
            delivery_worker.wake()
        self._tell(batch, good, unwanted, runs, newest)

    def _known(self, batch: Batch) -> list[UUID]:
        """The runs that this worker knows to be its own; what it claimed besides was not heard."""
        own = {entry.token.run_id for entry in batch.entries}
        return sorted(own | self.writing | set(self._held()))

    async def _already_ended(self, connection: Connection, batch: Batch) -> set[Token]:
        """The tokens whose end an earlier try of this batch wrote, though its answer was lost."""
        last: list[Entry] = [*batch.endings, *batch.undoings, *batch.releases]
        ended = [entry.token for entry in last]
        cursor = await connection.execute(
            statements.STILL_OPEN, [[token.run_id for token in ended]], binary=True
        )
        still_open = {row[0] for row in await cursor.fetchall()}
        return {token for token in ended if token.run_id not in still_open}

    def _tell(
        self,
        batch: Batch,
        good: set[Token],
        unwanted: set[Token],
        runs: list[Claimed],
        heads: Heads,
    ) -> None:
        for entry in batch.entries:
            if isinstance(entry, Ending) and entry.token in unwanted:
                _settle(entry, Unwanted())
            else:
                _settle(entry, None if entry.token in good else Stale())
        for token in batch.tokens:
            if token not in good:
                self._on_stale(token)
        for claimed in runs:
            self._on_claimed(claimed, heads.get(claimed.thread))


class _Runner:
    """Sends statements of one pipeline, each prepared once and read in binary."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __call__(self, statement: str, parameters: Iterable[Any]) -> Any:
        return await self._connection.execute(
            statement.encode(), list(parameters), prepare=True, binary=True
        )


def _settle(entry: Entry, error: Exception | None) -> None:
    if entry.done is None or entry.done.done():
        return
    if error is None:
        entry.done.set_result(None)
    else:
        entry.done.set_exception(error)


def _columns(rows: Iterable[Iterable[Any]], width: int) -> list[list[Any]]:
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]


def _put_columns(batch: Batch) -> list[list[Any]]:
    # Within one statement a row may be written once: the last of the same checkpoint counts.
    last = {(put.token, put.namespace, put.id): put for put in batch.puts}
    return _columns(
        [
            (
                put.token.run_id,
                put.token.attempt,
                put.namespace,
                put.id,
                put.parent_id,
                put.kind,
                put.blob,
                put.metadata,
                put.versions,
            )
            for put in last.values()
        ],
        9,
    )


def _blob_rows(batch: Batch) -> list[tuple[Any, ...]]:
    return [(*put.token, put.namespace, *blob) for put in batch.puts for blob in put.blobs]


def _write_rows(batch: Batch) -> list[tuple[Any, ...]]:
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for entry in batch.writes:
        for task_id, index, channel, kind, blob, path in entry.rows:
            place = (entry.token, entry.namespace, entry.id, task_id, index)
            if index < 0 or place not in rows:
                rows[place] = (
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


def _ends(batch: Batch) -> list[End]:
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
        for entry in batch.endings
    ]


def _undoing(batch: Batch) -> Deed:
    threads = sorted({entry.thread for entry in batch.undoings})
    return run_state_sql.undo(threads, [(*entry.token, "running") for entry in batch.undoings])


def _release_rows(batch: Batch) -> list[tuple[Any, ...]]:
    return [(*e.token, e.lost, e.company, e.delay) for e in batch.releases]
