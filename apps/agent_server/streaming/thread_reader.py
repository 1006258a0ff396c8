"""A reader of a whole thread: run after run, each from its first event to its last."""

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
    StateUpdated,
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
    """What one run said."""

    run: FollowedRun
    events: list[Event]


class CaughtUp:
    """All that was kept has been given."""


class ThreadClosed(Exception):
    """The thread was deleted."""


class ThreadReader:
    """`next` gives what has come. To be used as an async context manager.

    `after` is where to begin: after that event of the runs that are kept; None: from now on.
    """

    def __init__(self, hub: StreamHub, scope: Scope, pk: UUID, after: EventId | None) -> None:
        self.channel = thread_channel(pk).encode()
        self._hub = hub
        self._scope = scope
        self._pk = pk
        self._after = after
        self._is_first_look = True
        self._has_caught_up = False
        self._looks = False
        self._looking: asyncio.Task[list[FollowedRun] | None] | None = None
        self._waiting: deque[tuple[FollowedRun, EventId | None]] = deque()
        self._known: OrderedDict[UUID, None] = OrderedDict()
        self._begun: list[FollowedRun] = []
        self._states: deque[StateUpdated] = deque()
        self._run: FollowedRun | None = None
        self._stream: Subscription | None = None
        self._wakes = 0
        self._wake_requested = False
        self._woken = asyncio.Event()

    async def next(self) -> RunEvents | StateUpdated | CaughtUp | None:
        """What came next; None after a `wake`. `ThreadGone` when there is nothing to follow."""
        while True:
            self._woken.clear()
            if self._wake_requested:
                self._wake_requested = False
                return None
            if self._states:
                return self._states.popleft()
            if self._look():
                continue
            if self._stream is None:
                self._go_on()
            if self._stream is not None and self._run is not None:
                run = self._run
                if events := self._stream.step():
                    if events[-1].name == END:
                        self._leave()
                    return RunEvents(run, events)
                if not self._stream.is_waiting:
                    continue
            is_idle = self._stream is None or self._stream.is_idle
            if is_idle and not (self._is_first_look or self._has_caught_up):
                self._has_caught_up = True
                return CaughtUp()
            await self._woken.wait()

    async def begun(self) -> None:
        """Wait until it is known where "now" is: whatever begins afterwards is heard whole.

        While the messages or the database are away that is not known; then nobody waits for long.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                while self._is_first_look:
                    self._woken.clear()
                    if not self._look():
                        await self._woken.wait()
                if self._stream is None:
                    self._go_on()

    def wake(self) -> None:
        """Have `next` return, also when nothing has come."""
        self._wake_requested = True
        self._wakes += 1
        if self._wakes % WAKES_PER_LOOKUP == 0:
            self._looks = True
        self._woken.set()

    # The hub's side

    def on_message(self, payload: bytes) -> None:
        notice = unpack_notice(payload)
        if isinstance(notice, StateUpdated):
            self._states.append(notice)
        elif isinstance(notice, ThreadDeleted):
            self._looks = True
        else:
            self._begun.append(
                FollowedRun(notice.run_id, notice.graph_id, True, notice.is_resumable, True)
            )
            self._take_begun()
        self._woken.set()

    def mark_stale(self) -> None:
        self._looks = True
        self._woken.set()

    # Inside

    def _look(self) -> bool:
        """Ask which runs there are, where that is due. True when something came of it."""
        if self._looking is None:
            if self._looks:
                self._looks = False
                self._looking = asyncio.ensure_future(
                    in_thread(
                        stream_history.list_followed,
                        self._scope,
                        self._pk,
                        self._after or BEGINNING,
                    )
                )
                self._looking.add_done_callback(lambda _: self._woken.set())
            return False
        if not self._looking.done():
            return False
        looking, self._looking = self._looking, None
        try:
            found = looking.result()
        except DatabaseError as error:
            log.warning("the runs of a thread could not be looked up: %s", error)
            asyncio.get_running_loop().call_later(1, self.mark_stale)
            return False
        if found is None:
            raise ThreadClosed
        self._take(found)
        return True

    def _take(self, found: list[FollowedRun]) -> None:
        is_first, self._is_first_look = self._is_first_look, False
        if not is_first:
            for run in found:
                self._follow(run, BEGINNING)
        elif self._after is None:
            for run in found:
                if run.is_open:
                    self._follow(run, None)
                self._knows(run)
        else:
            start: EventId = self._after
            for run in found:
                if start == BEGINNING or run.reaches:
                    self._follow(run, start)
                    start = BEGINNING
                else:
                    self._knows(run)

        self._take_begun()

    def _take_begun(self) -> None:
        """Follow runs that began, behind those that the first look found."""
        if not self._is_first_look:
            for run in self._begun:
                self._follow(run, BEGINNING)
            self._begun.clear()

    def _follow(self, run: FollowedRun, after: EventId | None) -> None:
        if run.run_id not in self._known:
            self._knows(run)
            self._waiting.append((run, after))

    def _knows(self, run: FollowedRun) -> None:
        self._known[run.run_id] = None
        if len(self._known) > MAX_KNOWN_RUNS:
            self._known.popitem(last=False)

    def _go_on(self) -> None:
        """Begin with the next run, if there is one."""
        if not self._waiting:
            return
        run, after = self._waiting.popleft()
        self._run = run
        self._stream = self._hub.open(
            run.run_id, after, is_resumable=run.is_resumable, woken=self._woken
        )
        if not run.is_open:
            self._stream.finish("over")

    def _leave(self) -> None:
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
        self._leave()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._looking
