"""Requests and notifications from runs and calls of this host to the worker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .backpressure import Backpressure
from .event_loop import Loop
from .wire import Frame, Link, LinkClosed, encode

T = TypeVar("T")


class Refused(RuntimeError):
    """The worker rejected a request; the message is the reason."""


class RpcClient:
    """Matches the worker's `answer` frames to the open requests of this host."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._thread = threading.get_ident()
        self.backpressure = Backpressure(link, self.loop) if isinstance(self.loop, Loop) else None

    @property
    def is_loop_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def channel(self, key: int) -> RunChannel:
        return RunChannel(self, key)

    def open_request(self) -> tuple[int, asyncio.Future[Any]]:
        number, answer = next(self._numbers), self.loop.create_future()
        self._pending[number] = answer
        return number, answer

    def on_answer(self, frame: Frame) -> None:
        """Handle an `answer` frame: `[_, number, succeeded, value]`."""
        _, number, succeeded, value = frame
        answer = self._pending.pop(number, None)
        if answer is None or answer.done():
            return
        if succeeded:
            answer.set_result(value)
        else:
            answer.set_exception(Refused(value))

    def close_request(self, number: int) -> None:
        self._pending.pop(number, None)

    def next_number(self) -> int:
        return next(self._numbers)


class RunChannel:
    """The requests and notifications of one run or call, identified by its key."""

    def __init__(self, rpc: RpcClient, key: int) -> None:
        self.rpc = rpc
        self.key = key

    def notify(self, kind: str, *fields: Any) -> None:
        """Send a frame without an answer, from any thread."""
        if self.rpc.is_loop_thread:
            self.rpc.link.send((kind, self.key, 0, *fields))
        else:
            # Encoded here, so that a frame above the limit is an error of its sender.
            data = encode((kind, self.key, 0, *fields))
            self.rpc.loop.call_soon_threadsafe(self.rpc.link.send_encoded, data)

    async def request(self, kind: str, *fields: Any) -> Any:
        """Send a frame and wait for its answer, on any loop. Raises `Refused`."""
        if not self.rpc.is_loop_thread:
            work = self.request(kind, *fields)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.rpc.loop))
        number, answer = self.rpc.open_request()
        try:
            self.rpc.link.send((kind, self.key, number, *fields))
            return await answer
        finally:
            self.rpc.close_request(number)

    def request_blocking(self, kind: str, *fields: Any) -> Any:
        """Do the same as `request`, for synchronous code on any thread, also the loop's."""
        if not self.rpc.is_loop_thread:
            return self.run_on_loop(self.request(kind, *fields))
        number = self.rpc.next_number()
        frame = self.rpc.link.round_trip(
            (kind, self.key, number, *fields),
            lambda arrived: arrived[0] == "answer" and arrived[1] == number,
        )
        if not frame[2]:
            raise Refused(frame[3])
        return frame[3]

    def run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.rpc.loop).result()

    async def drain(self) -> None:
        """Wait while the worker reads slower than this run writes."""
        if not self.rpc.link.is_full:
            return
        if self.rpc.is_loop_thread:
            await self.rpc.link.drain()
        else:
            work = self.rpc.link.drain()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.rpc.loop))


__all__ = ["LinkClosed", "Refused", "RpcClient", "RunChannel"]
