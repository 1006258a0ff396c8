"""What a worker answers when an operator asks (apps/operators/processes.py)."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
from celery.worker.control import inspect_command

from apps.agent_runtime import engine_thread


@inspect_command()
def graph_hosts(state: Any) -> list[dict[str, Any]]:
    """The worker's graph hosts as they are at this moment."""
    thread = engine_thread.current()
    if thread is None:
        return []
    engine = thread.engine
    return [
        {
            "revision_id": str(host.revision.revision_id),
            "pid": host.pid,
            "runs": host.sessions,
            **_measured(host.pid),
        }
        for host in (*engine.hosts.hosts, *engine.quarantine.hosts)
    ]


def _measured(pid: int) -> dict[str, int]:
    """Memory of the process and its children, and how long it lives; nothing when it is gone."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        memory = 0
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                memory += one.memory_info().rss
        return {"memory": memory, "seconds": int(time.time() - process.create_time())}
    return {}
