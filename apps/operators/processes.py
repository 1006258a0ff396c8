"""What the workers say of themselves: asked over Celery's own control messages."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from celery import current_app
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from apps.deployments.models import Revision

_PATIENCE_SECONDS = 0.7


@dataclass(frozen=True, slots=True)
class Worker:
    """A Celery process that answered."""

    name: str
    pid: int
    uptime: int
    threads: int
    done: dict[str, int]
    """Tasks that it has done, by name."""
    active: tuple[str, ...]
    memory: int


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A graph host, and whose it is."""

    worker: str
    pid: int
    revision: Revision | None
    runs: int
    memory: int
    seconds: int


def workers() -> list[Worker]:
    """Those that answer in time; none while the broker is away."""
    with contextlib.suppress(KombuError, RedisError, OSError):
        inspect = current_app.control.inspect(timeout=_PATIENCE_SECONDS)
        stats: dict[str, Any] = dict(inspect.stats() or {})
        active: dict[str, Any] = dict(inspect.active() or {})
        return [_worker(name, said, active.get(name, [])) for name, said in sorted(stats.items())]
    return []


def hosts() -> list[HostProcess]:
    """The graph hosts of all workers that answer."""
    with contextlib.suppress(KombuError, RedisError, OSError):
        answers = current_app.control.broadcast(
            "graph_hosts", reply=True, timeout=_PATIENCE_SECONDS
        )
        return _named(answers or [])
    return []


def _worker(name: str, said: dict[str, Any], active: list[dict[str, Any]]) -> Worker:
    return Worker(
        name=name,
        pid=int(said.get("pid", 0)),
        uptime=int(said.get("uptime", 0)),
        threads=int((said.get("pool") or {}).get("max-concurrency") or 0),
        done=dict(sorted((said.get("total") or {}).items())),
        active=tuple(sorted(str(task.get("name")) for task in active)),
        memory=int((said.get("rusage") or {}).get("maxrss", 0)) * 1024,
    )


def _named(answers: list[dict[str, Any]]) -> list[HostProcess]:
    told = [
        (worker, host)
        for answer in answers
        for worker, listed in answer.items()
        if isinstance(listed, list)
        for host in listed
    ]
    every = Revision.objects.across_workspaces(reason="operators see all processes")
    wanted = {host["revision_id"] for _, host in told}
    known = {
        str(revision.pk): revision
        for revision in every.filter(pk__in=wanted).select_related(
            "deployment__workspace__organization"
        )
    }
    return [
        HostProcess(
            worker=worker,
            pid=host["pid"],
            revision=known.get(host["revision_id"]),
            runs=host["runs"],
            memory=host.get("memory", 0),
            seconds=host.get("seconds", 0),
        )
        for worker, host in told
    ]
