"""What an engine takes out of Redis: threads with something to run, questions for its hosts.

It takes no more than it has room for, so what it does not take is there for other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import hiredis
from django.conf import settings

from apps.agent_runtime.graph_calls.call_session import Question
from apps.agent_runtime.hosts.graph_host import RevisionRef
from apps.agent_server.messaging.messages import CALLS, RUNS, CallRequest, CallResponse
from apps.agent_server.messaging.redis_connection import Command, RedisConnection, RedisLost

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 100
MOST_QUESTIONS = 200
"""Questions that one engine has its hosts work on at a time."""
WAIT_SECONDS = 5
SILENCE_SECONDS = 15
"""A Redis that does not even say that nothing came is gone."""
RETRY_SECONDS = 1.0
FULL_SECONDS = 0.1


class Kind(NamedTuple):
    """How a key is taken from: one thing that may be waited for, then what else is there."""

    wait: Command
    more: Command
    has_scores: bool


THREADS = Kind(("BZPOPMIN", RUNS, WAIT_SECONDS), ("ZPOPMIN", RUNS), has_scores=True)
QUESTIONS = Kind(("BLPOP", CALLS, WAIT_SECONDS), ("LPOP", CALLS), has_scores=False)


class Taker:
    """Takes things from one key of Redis, on a connection of its own that waits there."""

    def __init__(
        self, kind: Kind, room: Callable[[], int], take: Callable[[list[bytes]], None]
    ) -> None:
        """`room` says how many things may be taken now."""
        self._kind = kind
        self._room = room
        self._take = take
        self._link = RedisConnection(settings.REDIS_URL)
        self._has_room = asyncio.Event()
        self._client = 0
        self._is_leaving = False

    def look_again(self) -> None:
        """There may be room again."""
        self._has_room.set()

    async def work(self) -> None:
        """Take things until told to stop."""
        while not self._is_leaving:
            try:
                await self._once()
            except (RedisLost, TimeoutError) as error:
                logger.warning("Messages cannot be taken: %s", error or "Redis is silent.")
                self._link.close()
                await asyncio.sleep(RETRY_SECONDS)
            except hiredis.ReplyError as error:
                logger.warning("Redis refused: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                logger.exception("A message could not be taken.")

    async def _once(self) -> None:
        room = min(self._room(), MOST_AT_ONCE) - 1
        if room < 0:
            self._has_room.clear()
            with contextlib.suppress(TimeoutError):
                # Claims that find nothing make room as well, and say nothing of it.
                await asyncio.wait_for(self._has_room.wait(), FULL_SECONDS)
            return
        if not self._link.is_up:
            [self._client] = await self._link.run(("CLIENT", "ID"))
        async with asyncio.timeout(SILENCE_SECONDS):
            # The second is done at once when the first has got something.
            first, others = await self._link.run(self._kind.wait, (*self._kind.more, room))
        found = [] if first is None else [first[1]]
        found += [part[0] for part in others] if self._kind.has_scores else others or []
        if found:
            self._take(found)

    def leave(self) -> Command | None:
        """Stop; the command, sent on another connection, ends a wait that is under way."""
        self._is_leaving = True
        self._has_room.set()
        return ("CLIENT", "UNBLOCK", self._client) if self._link.is_up else None

    def close(self) -> None:
        self._link.close()


class Inbox:
    """Both kinds of messages of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._questions: set[asyncio.Task[None]] = set()
        self._runs = Taker(THREADS, lambda: engine.room, self._execute)
        self._calls = Taker(QUESTIONS, self._room_for_questions, self._answer)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._runs.work(), name="take-runs"),
            loop.create_task(self._calls.work(), name="take-calls"),
        ]

    def look_again(self) -> None:
        """The engine has room for a run."""
        self._runs.look_again()

    async def leave(self) -> None:
        """Take no more runs; those that came too late go back to the others."""
        unblock = self._runs.leave()
        if unblock is not None:
            try:
                await self._engine.redis.run(unblock)
                await asyncio.wait([self._tasks[0]], timeout=1)
            except (RedisLost, hiredis.ReplyError) as error:
                logger.info("The wait for runs ends with its connection: %s", error)

    async def close(self) -> None:
        for task in (*self._tasks, *self._questions):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._questions, return_exceptions=True)
        self._runs.close()
        self._calls.close()

    # Runs

    def _execute(self, found: list[bytes]) -> None:
        for thread in found:
            self._engine.execute(UUID(bytes=thread))

    # Questions

    def _room_for_questions(self) -> int:
        return MOST_QUESTIONS - len(self._questions)

    def _answer(self, found: list[bytes]) -> None:
        for packed in found:
            try:
                asked = CallRequest.unpack(packed)
            except (ValueError, TypeError):
                logger.warning("A question came that makes no sense.")
                continue
            if asked.is_late:
                continue
            task = asyncio.get_running_loop().create_task(self._ask(asked))
            self._questions.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._questions.discard(task)
        self._calls.look_again()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A question could not be answered.", exc_info=error)

    async def _ask(self, asked: CallRequest) -> None:
        question = Question(
            revision=RevisionRef(
                UUID(bytes=asked.revision_id),
                UUID(bytes=asked.deployment_id),
                UUID(bytes=asked.workspace_id),
            ),
            graph_id=asked.graph_id,
            method=asked.method,
            thread=UUID(bytes=asked.thread) if asked.thread else None,
            thread_id=asked.thread_id or None,
            params=asked.params,
        )
        reply = await self._engine.ask(question, asked.seconds)
        answered = CallResponse(asked.id, reply.done, reply.body)
        await self._engine.redis.run(*answered.commands(asked))
