"""Starts and stops the engine with its Celery worker process."""

from __future__ import annotations

from typing import Any

from celery import current_app, signals

from apps.agent_runtime import engine_thread
from apps.agent_server.webhooks import delivery_worker


@signals.worker_ready.connect
def start_engine(sender: Any = None, **_: object) -> None:
    """Start an engine in a worker of the `runs` queue and sweep the runs of dead workers."""
    if "runs" in {queue.name for queue in sender.task_consumer.queues}:
        engine_thread.start(str(sender.hostname))
        current_app.send_task("agent_server.sweep_runs")


@signals.worker_shutdown.connect
def stop_engine(**_: object) -> None:
    """Return runs to the queue after their current step."""
    engine_thread.stop()
    delivery_worker.stop()
