"""The crossings from async code to the database.

Async code waits; sync code works. A consumer calls one service, through `in_thread` or `on_loop`,
and never loops over the ORM. The threads are those that also serve the WSGI handler, so their
database connections last and their number bounds the load on PostgreSQL.

A thread costs a request more than a short statement does: two hand-overs and the interpreter's
lock. So a service whose only waits are prepared statements may be called `on_loop`: it runs in a
greenlet there, and while it waits others run. It is written like any other; where it turns out to
need the ORM after all, it is begun again in a thread.
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
from greenlet import getcurrent, greenlet

from apps.core.connections import close_dead

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


@functools.lru_cache
def pool() -> ThreadPoolExecutor:
    """The web process's threads; made at first use, after any fork."""
    return ThreadPoolExecutor(settings.WEB_THREADS, thread_name_prefix="web")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a sync function on the pool, with this task's context variables."""
    context = contextvars.copy_context()
    call = functools.partial(_with_live_connection, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(pool(), context.run, call)


def _with_live_connection(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    close_dead()
    return function(*args, **kwargs)


async def on_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a sync function here; what it waits for by `wait_for` is awaited.

    One that needs a thread (Django says so when the ORM is used here) is called there instead, from
    its beginning. That must be before it has changed anything: `RuntimeError` otherwise.
    """
    lane = _Lane(function)
    try:
        return cast("T", await lane.run_on(*args, **kwargs))
    except (SynchronousOnlyOperation, NeedsThread) as error:
        if lane.has_changed_something:
            raise RuntimeError(f"{function} needs a thread, and says so too late.") from error
    return await in_thread(function, *args, **kwargs)


class NeedsThread(Exception):
    """What was about to be done would hold up the loop."""


class _Lane(greenlet):
    """One call of a sync function on a loop."""

    has_changed_something = False

    async def run_on(self, *args: Any, **kwargs: Any) -> Any:
        self.gr_context = contextvars.copy_context()
        given = self.switch(*args, **kwargs)
        while not self.dead:
            try:
                answer = await given
            except BaseException:  # noqa: BLE001  (the function's own matter, cancellation too)
                given = self.throw(*sys.exc_info())
            else:
                given = self.switch(answer)
        return given


def is_on_loop() -> bool:
    """Whether this code was called `on_loop`."""
    return isinstance(getcurrent(), _Lane)


def wait_for(work: Awaitable[T]) -> T:
    """The result of something to await, for code that was called `on_loop`."""
    lane = getcurrent()
    assert isinstance(lane, _Lane)  # noqa: S101
    assert lane.parent is not None  # noqa: S101
    return cast("T", lane.parent.switch(work))


def needs_thread() -> None:
    """What comes now would hold up a loop; code that was called `on_loop` goes to a thread."""
    if is_on_loop():
        raise NeedsThread


def has_changed_something() -> None:
    """From here on, code that was called `on_loop` cannot be begun again in a thread."""
    lane = getcurrent()
    if isinstance(lane, _Lane):
        lane.has_changed_something = True
