"""A reader of all runs of a thread, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from django.db import Error as DatabaseError

from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.services.stream_history import FollowedRun
from apps.agent_server.streaming.hub import StreamHub
from apps.agent_server.streaming.streams import (
    BEGINNING,
    END,
    Event,
    EventId,
    RunStarted,
    StateUpdatedMessage,
    ThreadDeleted,
    thread_channel,
    unpack_notice,
)
from apps.agent_server.streaming.subscription import Subscription
from apps.core.sync_bridge import in_thread

log = logging.getLogger(__name__)

MAX_KNOWN_RUNS = 1_000
WAKES_PER_LOOKUP = 6
START_TIMEOUT_SECONDS = 2.0


class RunEvents(NamedTuple):
    """Events of one run."""

    run: FollowedRun
    events: list[Event]


class CaughtUp:
    """All stored events were returned."""


class ThreadClosed(Exception):
    """The thread was deleted."""


class ThreadReader:
    """Reads a thread's events with `next`. Use it as an async context manager.

    `after` is the last event that the client has seen; None starts with new events.
    """

    def __init__(self, hub: StreamHub, scope: Scope, pk: UUID, after: EventId | None) -> None:
        self.channel = thread_channel(pk).encode()
        self._hub = hub
        self._scope = scope
        self._pk = pk
        self._after = after
        self._is_first_lookup = True
        self._has_caught_up = False
        self._needs_lookup = False
        self._lookup: asyncio.Task[list[FollowedRun] | None] | None = None
        self._queue: deque[tuple[FollowedRun, EventId | None]] = deque()
        self._known_run_ids: OrderedDict[UUID, None] = OrderedDict()
        self._started_runs: list[FollowedRun] = []
        self._state_updates: deque[StateUpdatedMessage] = deque()
        self._run: FollowedRun | None = None
        self._stream: Subscription | None = None
        self._wakes = 0
        self._wake_requested = False
        self._woken = asyncio.Event()

    async def next(self) -> RunEvents | StateUpdatedMessage | CaughtUp | None:
        """Wait for the next result; None after a `wake`. Raises `ThreadClosed`."""
        while True:
            self._woken.clear()
            if self._wake_requested:
                self._wake_requested = False
                return None
            if self._state_updates:
                return self._state_updates.popleft()
            if self._poll_lookup():
                continue
            if self._stream is None:
                self._open_next()
            if self._stream is not None and self._run is not None:
                run = self._run
                if events := self._stream.step():
                    if events[-1].name == END:
                        self._close_stream()
                    return RunEvents(run, events)
                if not self._stream.is_waiting:
                    continue
            is_idle = self._stream is None or self._stream.is_idle
            if is_idle and not (self._is_first_lookup or self._has_caught_up):
                self._has_caught_up = True
                return CaughtUp()
            await self._woken.wait()

    async def wait_started(self) -> None:
        """Wait until the start position is known; later runs are read from their first event.

        Returns after `START_TIMEOUT_SECONDS` if Redis or PostgreSQL is unavailable.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                while self._is_first_lookup:
                    self._woken.clear()
                    if not self._poll_lookup():
                        await self._woken.wait()
                if self._stream is None:
                    self._open_next()

    def wake(self) -> None:
        """Make `next` return, even without events."""
        self._wake_requested = True
        self._wakes += 1
        if self._wakes % WAKES_PER_LOOKUP == 0:
            self._needs_lookup = True
        self._woken.set()

    # Called by the hub

    def on_message(self, payload: bytes) -> None:
        notice = unpack_notice(payload)
        if isinstance(notice, StateUpdatedMessage):
            self._state_updates.append(notice)
        elif isinstance(notice, ThreadDeleted):
            self._needs_lookup = True
        elif isinstance(notice, RunStarted):
            self._started_runs.append(
                FollowedRun(notice.run_id, notice.graph_id, True, notice.is_resumable, True)
            )
            self._follow_started()
        self._woken.set()

    def mark_stale(self) -> None:
        self._needs_lookup = True
        self._woken.set()

    # Internal

    def _poll_lookup(self) -> bool:
        """Query the thread's runs if required; True when a result was handled."""
        if self._lookup is None:
            if self._needs_lookup:
                self._needs_lookup = False
                self._lookup = asyncio.ensure_future(
                    in_thread(
                        stream_history.list_followed,
                        self._scope,
                        self._pk,
                        self._after or BEGINNING,
                    )
                )
                self._lookup.add_done_callback(lambda _: self._woken.set())
            return False
        if not self._lookup.done():
            return False
        lookup, self._lookup = self._lookup, None
        try:
            runs = lookup.result()
        except DatabaseError as error:
            log.warning("Querying the runs of a thread failed: %s", error)
            asyncio.get_running_loop().call_later(1, self.mark_stale)
            return False
        if runs is None:
            raise ThreadClosed
        self._add_runs(runs)
        return True

    def _add_runs(self, runs: list[FollowedRun]) -> None:
        is_first, self._is_first_lookup = self._is_first_lookup, False
        if not is_first:
            for run in runs:
                self._follow(run, BEGINNING)
        elif self._after is None:
            for run in runs:
                if run.is_open:
                    self._follow(run, None)
                self._remember(run)
        else:
            start: EventId = self._after
            for run in runs:
                if start == BEGINNING or run.has_newer_events:
                    self._follow(run, start)
                    start = BEGINNING
                else:
                    self._remember(run)

        self._follow_started()

    def _follow_started(self) -> None:
        """Follow started runs, after those that the first lookup returned."""
        if not self._is_first_lookup:
            for run in self._started_runs:
                self._follow(run, BEGINNING)
            self._started_runs.clear()

    def _follow(self, run: FollowedRun, after: EventId | None) -> None:
        if run.run_id not in self._known_run_ids:
            self._remember(run)
            self._queue.append((run, after))

    def _remember(self, run: FollowedRun) -> None:
        self._known_run_ids[run.run_id] = None
        if len(self._known_run_ids) > MAX_KNOWN_RUNS:
            self._known_run_ids.popitem(last=False)

    def _open_next(self) -> None:
        """Open the stream of the next run, if there is one."""
        if not self._queue:
            return
        run, after = self._queue.popleft()
        self._run = run
        self._stream = self._hub.open(
            run.run_id, after, is_resumable=run.is_resumable, woken=self._woken
        )
        if not run.is_open:
            self._stream.finish("over")

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = self._run = None

    async def __aenter__(self) -> Self:
        self._hub.listen(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hub.remove_listener(self)
        self._close_stream()
        if self._lookup is not None:
            self._lookup.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._lookup
