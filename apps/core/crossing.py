"""The one crossing from async code to the database.

Async code waits; sync code works. A consumer calls one service through `in_thread` and never loops
over the ORM. The threads are those that also serve the WSGI handler, so their database connections
last and their number bounds the load on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.conf import settings

from apps.core.connections import close_dead

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
