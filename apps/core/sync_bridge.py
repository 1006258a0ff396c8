"""Bridges between async code and synchronous services.

Consumers are async; services are sync. A consumer calls one service, through `in_thread` or
`run_on_loop`, and never loops over the ORM. The threads also serve the WSGI handler. They keep
their database connections, and their number bounds the load on PostgreSQL.

A thread costs a request more than a short statement: two handovers and contention for the
interpreter lock. A service that waits only for prepared statements may therefore run on the loop:
`run_on_loop` runs it in a greenlet, which yields to the loop while it waits. The service is written
like any other; if it needs the ORM after all, it is restarted in a thread. See docs/adr/0014.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from greenlet import enable_optional_cleanup, getcurrent, greenlet  # type: ignore[attr-defined]

from apps.core.connections import close_dead

log = logging.getLogger(__name__)

# When a thread has ended, greenlet looks for references to the thread's main greenlet, and if it
# sees none it drops one. It does not see those of garbage that is being collected at this moment:
# the collector then follows a pointer to freed memory. See docs/adr/0014.
enable_optional_cleanup(False)

P = ParamSpec("P")
T = TypeVar("T")


@functools.lru_cache
def thread_pool() -> ThreadPoolExecutor:
    """Return the thread pool of the web process, created at first use, after any fork."""
    return ThreadPoolExecutor(settings.WEB_THREADS, thread_name_prefix="web")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a sync function on the pool, with this task's context variables."""
    context = contextvars.copy_context()
    call = functools.partial(_with_live_connection, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(thread_pool(), context.run, call)


def _with_live_connection(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    close_dead()
    return function(*args, **kwargs)


async def run_on_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a sync function in a greenlet on this loop; its `await_result` calls are awaited.

    A function that needs a thread (Django refuses ORM use on a loop) is restarted in a thread. That
    is possible only before the function has changed anything; afterwards it is a `RuntimeError`.
    """
    call = _GreenletCall(function)
    try:
        return cast("T", await call.run_on(*args, **kwargs))
    except (SynchronousOnlyOperation, ThreadRequired) as error:
        if call.is_dirty:
            raise RuntimeError(f"{function} requested a thread after it had written.") from error
    return await in_thread(function, *args, **kwargs)


class ThreadRequired(Exception):
    """The next step would block the event loop."""


class _GreenletCall(greenlet):
    """One call of a sync function on an event loop."""

    is_dirty = False

    async def run_on(self, *args: Any, **kwargs: Any) -> Any:
        self.gr_context = contextvars.copy_context()
        yielded = self.switch(*args, **kwargs)
        while not self.dead:
            try:
                result = await yielded
            except BaseException:  # noqa: BLE001  (the function handles it, cancellation included)
                yielded = self.throw(*sys.exc_info())
            else:
                yielded = self.switch(result)
        return yielded


def is_on_loop() -> bool:
    """Return whether this code runs inside `run_on_loop`."""
    return isinstance(getcurrent(), _GreenletCall)


def await_result(awaitable: Awaitable[T]) -> T:
    """Await `awaitable` from sync code that runs inside `run_on_loop`."""
    call = getcurrent()
    assert isinstance(call, _GreenletCall)  # noqa: S101
    assert call.parent is not None  # noqa: S101
    return cast("T", call.parent.switch(awaitable))


def require_thread() -> None:
    """Continue in a thread: the next step would block the event loop."""
    if is_on_loop():
        raise ThreadRequired


def mark_dirty() -> None:
    """Record that a `run_on_loop` call has written, so it cannot be restarted in a thread."""
    call = getcurrent()
    if isinstance(call, _GreenletCall):
        call.is_dirty = True
