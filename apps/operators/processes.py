"""Status of the workers, queried with Celery's control messages."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from celery import current_app
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from apps.deployments.models import Revision

_REPLY_TIMEOUT_SECONDS = 0.7


@dataclass(frozen=True, slots=True)
class Worker:
    """A Celery process that replied."""

    name: str
    pid: int
    uptime: int
    threads: int
    executed: dict[str, int]
    """The number of executed tasks by name."""
    active: tuple[str, ...]
    memory: int


@dataclass(frozen=True, slots=True)
class GraphHostProcess:
    """A graph host with its revision."""

    worker: str
    pid: int
    revision: Revision | None
    runs: int
    memory: int
    seconds: int


def list_workers() -> list[Worker]:
    """Return the workers that reply in time; none while the broker is unavailable."""
    with contextlib.suppress(KombuError, RedisError, OSError):
        inspect = current_app.control.inspect(timeout=_REPLY_TIMEOUT_SECONDS)
        stats: dict[str, Any] = dict(inspect.stats() or {})
        active: dict[str, Any] = dict(inspect.active() or {})
        return [
            _build_worker(name, reply, active.get(name, []))
            for name, reply in sorted(stats.items())
        ]
    return []


def list_hosts() -> list[GraphHostProcess]:
    """Return the graph hosts of all workers that reply."""
    with contextlib.suppress(KombuError, RedisError, OSError):
        replies = current_app.control.broadcast(
            "graph_hosts", reply=True, timeout=_REPLY_TIMEOUT_SECONDS
        )
        return _with_revisions(replies or [])
    return []


def _build_worker(name: str, stats: dict[str, Any], active: list[dict[str, Any]]) -> Worker:
    return Worker(
        name=name,
        pid=int(stats.get("pid", 0)),
        uptime=int(stats.get("uptime", 0)),
        threads=int((stats.get("pool") or {}).get("max-concurrency") or 0),
        executed=dict(sorted((stats.get("total") or {}).items())),
        active=tuple(sorted(str(task.get("name")) for task in active)),
        memory=int((stats.get("rusage") or {}).get("maxrss", 0)) * 1024,
    )


def _with_revisions(replies: list[dict[str, Any]]) -> list[GraphHostProcess]:
    listed_hosts = [
        (worker, host)
        for reply in replies
        for worker, worker_hosts in reply.items()
        if isinstance(worker_hosts, list)
        for host in worker_hosts
    ]
    revisions = Revision.objects.across_workspaces(reason="operators see all processes")
    revision_ids = {host["revision_id"] for _, host in listed_hosts}
    revisions_by_id = {
        str(revision.pk): revision
        for revision in revisions.filter(pk__in=revision_ids).select_related(
            "deployment__workspace__organization"
        )
    }
    return [
        GraphHostProcess(
            worker=worker,
            pid=host["pid"],
            revision=revisions_by_id.get(host["revision_id"]),
            runs=host["runs"],
            memory=host.get("memory", 0),
            seconds=host.get("seconds", 0),
        )
        for worker, host in listed_hosts
    ]
