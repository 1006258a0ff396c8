"""Messages that wake the engine of a worker, and the net under them.

Nothing depends on a message: a run is a row, and the sweeper sends its message again.
"""

from __future__ import annotations

import socket
from typing import Any
from uuid import UUID

from celery import shared_task, signals

from apps.agent_server import calls
from apps.agent_server.engine import loop


def _node() -> str:
    return f"worker@{socket.gethostname()}"


@signals.worker_ready.connect
def start_engine(sender: Any = None, **_: object) -> None:
    """A worker that takes runs begins at once, and takes back what its dead predecessor held."""
    if "runs" in {queue.name for queue in sender.task_consumer.queues}:
        loop.start(str(sender.hostname))
        sweep_runs.delay()


@signals.worker_shutdown.connect
def stop_engine(**_: object) -> None:
    """Runs go back to the queue after their current step."""
    loop.stop()


@shared_task(name="agent_server.execute_thread", acks_late=False)
def execute_thread(thread: str) -> None:
    """Look for the next run of a thread. Safe to repeat: the claim decides."""
    engine = loop.start(_node())
    engine.call(engine.engine.execute, UUID(thread))


@shared_task(name="agent_server.cancel", acks_late=False)
def cancel(run_id: str) -> None:
    """Have the run stop that somebody wants cancelled, wherever it runs. Safe to repeat."""
    engine = loop.start(_node())
    engine.submit(engine.engine.cancel_as_asked(UUID(run_id)))


@shared_task(name="agent_server.call", acks_late=False)
def call(call_id: str, asked: dict[str, Any], seconds: float) -> None:
    """Have a graph host answer a question; the answer goes to who waits for it in Redis."""
    engine = loop.start(_node())
    engine.submit(calls.answer(engine.engine, call_id, asked, seconds))


@shared_task(name="agent_server.sweep_runs", acks_late=False)
def sweep_runs() -> None:
    """Return runs whose worker is lost, and wake workers for runs that wait. Safe to repeat."""
    from apps.agent_server import sweeping  # noqa: PLC0415  (models, which this module needs nowhere else)

    sweeping.sweep()


@shared_task(name="agent_server.purge_threads", acks_late=False)
def purge_threads() -> None:
    """Delete what stateless runs left. Safe to repeat."""
    from apps.agent_server import sweeping  # noqa: PLC0415

    sweeping.purge_temporary_threads()
