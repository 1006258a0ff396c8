"""The way from a run or a call to its worker: what it tells, what it asks."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .wire import Frame, Link, LinkClosed

T = TypeVar("T")


class Refused(RuntimeError):
    """The worker did not do what it was asked; the text says why."""


class Desk:
    """Keeps the questions that this host has open, and gives each its answer."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._thread = threading.get_ident()

    @property
    def is_this_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def door(self, key: int) -> Door:
        return Door(self, key)

    def question(self) -> tuple[int, asyncio.Future[Any]]:
        number, answer = next(self._numbers), self.loop.create_future()
        self._open[number] = answer
        return number, answer

    def answer(self, frame: Frame) -> None:
        """Take an `answer` frame: `[_, number, done, value]`."""
        _, number, done, value = frame
        waiting = self._open.pop(number, None)
        if waiting is None or waiting.done():
            return
        if done:
            waiting.set_result(value)
        else:
            waiting.set_exception(Refused(value))

    def forget(self, number: int) -> None:
        self._open.pop(number, None)

    def next_number(self) -> int:
        return next(self._numbers)


class Door:
    """One run's or call's way to the worker. Everything said through it is about that run only."""

    def __init__(self, desk: Desk, key: int) -> None:
        self.desk = desk
        self.key = key

    def tell(self, kind: str, *rest: Any) -> None:
        """Say something that needs no answer; from any thread."""
        if self.desk.is_this_thread:
            self.desk.link.send((kind, self.key, 0, *rest))
        else:
            self.desk.loop.call_soon_threadsafe(self.desk.link.send, (kind, self.key, 0, *rest))

    async def ask(self, kind: str, *rest: Any) -> Any:
        """Say something and wait for the answer; `Refused` when the worker says no."""
        number, answer = self.desk.question()
        try:
            self.desk.link.send((kind, self.key, number, *rest))
            return await answer
        finally:
            self.desk.forget(number)

    def ask_blocking(self, kind: str, *rest: Any) -> Any:
        """`ask` for synchronous code, on the loop's thread or on another."""
        if not self.desk.is_this_thread:
            return self.wait_for(self.ask(kind, *rest))
        number = self.desk.next_number()
        frame = self.desk.link.round_trip(
            (kind, self.key, number, *rest),
            lambda arrived: arrived[0] == "answer" and arrived[1] == number,
        )
        if not frame[2]:
            raise Refused(frame[3])
        return frame[3]

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, for code on another thread than the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self.desk.loop).result()

    async def give_way(self) -> None:
        """Wait while the worker reads slower than this run writes."""
        if self.desk.link.is_full:
            await self.desk.link.drain()


__all__ = ["Desk", "Door", "LinkClosed", "Refused"]
