"""Sync services on the event loop, and in a thread where the ORM requires one."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest
from django.db import connection

from apps.agent_server import prepared_sql
from apps.core.connections import close_dead, loop_database
from apps.core.sync_bridge import (
    await_result,
    in_thread,
    is_on_loop,
    mark_dirty,
    require_thread,
    run_on_loop,
)
from apps.organizations.models import Organization

NAME: ContextVar[str] = ContextVar("name")


async def resolve_later(value):
    await asyncio.sleep(0)
    if isinstance(value, Exception):
        raise value
    return value


async def test_await_result_yields_to_other_calls():
    order = []

    def work(name):
        order.append(name)
        results = [await_result(resolve_later(name)), await_result(resolve_later(1)), is_on_loop()]
        order.append(name)
        return [*results, threading.get_ident()]

    first, second = await asyncio.gather(run_on_loop(work, "a"), run_on_loop(work, "b"))

    assert first == ["a", 1, True, threading.get_ident()]
    assert second == ["b", 1, True, threading.get_ident()]
    assert order == ["a", "b", "a", "b"]
    assert not is_on_loop()


async def test_errors_propagate_in_both_directions():
    def work():
        with pytest.raises(LookupError, match="inner"):
            await_result(resolve_later(LookupError("inner")))
        raise ValueError("outer")

    with pytest.raises(ValueError, match="outer"):
        await run_on_loop(work)


async def test_context_variables_are_copied_into_the_call():
    NAME.set("request")

    def work():
        before = NAME.get()
        NAME.set("changed")
        await_result(resolve_later(None))
        return before, NAME.get()

    assert await run_on_loop(work) == ("request", "changed")
    assert NAME.get() == "request"


async def test_cancelling_the_caller_cancels_the_awaited_work():
    events = []

    def work():
        try:
            await_result(asyncio.sleep(60))
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    task = asyncio.create_task(run_on_loop(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert events == ["cancelled"]


async def test_call_that_uses_the_orm_restarts_in_a_thread(transactional_db):
    calls = []

    def work():
        calls.append(is_on_loop())
        row = prepared_sql.fetch_row("SELECT 1", [])
        return row, Organization.objects.count(), threading.get_ident()

    row, count, thread = await run_on_loop(work)
    await in_thread(_close)
    await loop_database().aclose()

    assert (row, count) == ((1,), 0)
    assert thread != threading.get_ident()
    assert calls == [True, False]


THREAD_ENDS_DURING_COLLECTION = """
import gc, threading, time
import django.conf
django.conf.settings.configure()
from apps.core.sync_bridge import _GreenletCall

class Finalizer:
    def __del__(self):
        may_end.set()
        thread.join()
        end = time.monotonic() + 0.3
        while time.monotonic() < end:  # the interpreter frees what the thread left
            pass

def work():
    call = _GreenletCall(print)
    call.itself, call.finalizer = call, Finalizer()
    del call
    made.set()
    may_end.wait()

gc.disable()
for _ in range(3):
    made, may_end = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    made.wait()
    gc.collect()
"""


def test_thread_may_end_while_its_greenlet_is_collected():
    """With greenlet's search for lost references this is a segmentation fault of the collector."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", THREAD_ENDS_DURING_COLLECTION],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


async def test_dirty_call_is_not_restarted(transactional_db):
    def work():
        mark_dirty()
        require_thread()

    with pytest.raises(RuntimeError, match="after it had written"):
        await run_on_loop(work)


async def test_statements_on_the_loop_run_concurrently(transactional_db):
    def work():
        return prepared_sql.fetch_row(
            "SELECT statement_timestamp()::text, pg_sleep(1)::text, clock_timestamp()::text", []
        )

    rows = await asyncio.gather(*(run_on_loop(work) for _ in range(5)))
    await loop_database().aclose()

    [(_, _, first_end), (second_start, _, _), *_] = sorted(rows)
    assert second_start < first_end


async def test_connection_closed_by_the_server_is_replaced(transactional_db):
    backend = "SELECT pg_backend_pid()"
    [first_pid] = await loop_database().fetch_rows(backend, [])
    await in_thread(_terminate_backend, first_pid[0])
    [second_pid] = await loop_database().fetch_rows(backend, [])
    await loop_database().aclose()

    assert first_pid != second_pid


async def test_connections_are_checked_with_descriptors_above_1023(transactional_db):
    """`select` supports only the first 1,024 descriptors."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard_limit, 4096), hard_limit))
    sockets = [socket.socket() for _ in range(1100)]
    try:
        [first_row] = await loop_database().fetch_rows("SELECT pg_backend_pid()", [])
        [second_row] = await loop_database().fetch_rows("SELECT pg_backend_pid()", [])
        pid, pid_after_check = await in_thread(_backend_pids_around_check)
    finally:
        for open_socket in sockets:
            open_socket.close()
    await loop_database().aclose()

    assert first_row == second_row
    assert pid == pid_after_check


def _backend_pids_around_check() -> tuple[int, int]:
    """Return the backend pid of this thread's connection before and after a check."""
    pids = []
    for _ in range(2):
        close_dead()
        row = prepared_sql.fetch_row("SELECT pg_backend_pid()", [])
        pids.append(row[0])
    connection.close()
    return pids[0], pids[1]


def _close() -> None:
    connection.close()


def _terminate_backend(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    connection.close()
