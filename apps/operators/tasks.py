"""Celery inspect commands that workers answer (apps/operators/processes.py)."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
from celery.worker.control import inspect_command

from apps.agent_runtime import engine_thread


@inspect_command()
def graph_hosts(state: Any) -> list[dict[str, Any]]:
    """Return the worker's graph hosts."""
    thread = engine_thread.current()
    if thread is None:
        return []
    engine = thread.engine
    return [
        {
            "revision_id": str(host.revision.revision_id),
            "pid": host.pid,
            "runs": host.session_count,
            **_measure(host.pid),
        }
        for host in (*engine.hosts.hosts, *engine.isolated_hosts.hosts)
    ]


def _measure(pid: int) -> dict[str, int]:
    """Return memory (with children) and age of the process; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        memory = 0
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                memory += member.memory_info().rss
        return {"memory": memory, "seconds": int(time.time() - process.create_time())}
    return {}
