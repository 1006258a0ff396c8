"""Periodic tasks of the Agent Server.

Lost messages are harmless: a run is a row, and the sweeper queues its thread again.
"""

from __future__ import annotations

import logging
from uuid import UUID

from celery import shared_task

from apps.agent_server import attempt_traces, recovery, thread_ttl
from apps.agent_server.services import (
    cancel_runs,
    cron_firing,
    deliveries,
    store,
    stream_history,
)
from apps.agent_server.webhooks import delivery_worker

logger = logging.getLogger(__name__)


@shared_task(name="agent_server.sweep_runs", acks_late=False)
def sweep_runs() -> None:
    """Return runs of lost workers to the queue, queue waiting threads. Safe to repeat."""
    recovery.sweep()


@shared_task(name="agent_server.resume_runs", acks_late=False)
def resume_runs(deployment_id: str) -> None:
    """Queue the runs of a deployment that was started again. Safe to repeat."""
    recovery.resume_runs(UUID(deployment_id))


@shared_task(name="agent_server.cancel_beyond_storage", acks_late=False, expires=60)
def cancel_beyond_storage() -> None:
    """Cancel the open runs of workspaces far above their limit of stored bytes. Safe to repeat."""
    if count := cancel_runs.cancel_beyond_storage():
        logger.warning("%d runs of workspaces above MAX_THREAD_STORAGE_MB were cancelled", count)


@shared_task(name="agent_server.close_traces", acks_late=False, expires=10)
def close_traces() -> None:
    """Close the traces of attempts whose process ended. Safe to repeat."""
    attempt_traces.close_due()


@shared_task(name="agent_server.purge_threads", acks_late=False)
def purge_threads() -> None:
    """Delete threads of ended stateless runs. Safe to repeat."""
    recovery.purge_temporary_threads()


@shared_task(name="agent_server.fire_crons", acks_late=False, expires=10)
def fire_crons() -> None:
    """Start the runs of due crons. Safe to repeat: each is claimed."""
    cron_firing.fire_due()


@shared_task(name="agent_server.deliver_webhooks", acks_late=False, expires=10)
def deliver_webhooks() -> None:
    """Send due webhooks. Safe to repeat: each is claimed."""
    delivery_worker.wake()


@shared_task(name="agent_server.forget_webhooks", acks_late=False)
def forget_webhooks() -> None:
    """Delete old webhook deliveries. Safe to repeat."""
    deliveries.delete_old()


@shared_task(name="agent_server.sweep_store", acks_late=False)
def sweep_store() -> None:
    """Delete expired store items. Safe to repeat."""
    store.delete_expired()


@shared_task(name="agent_server.sweep_threads", acks_late=False, expires=60)
def sweep_threads() -> None:
    """Delete expired threads and checkpoints. Safe to repeat."""
    thread_ttl.sweep()


@shared_task(name="agent_server.sweep_streams", acks_late=False)
def sweep_streams() -> None:
    """Delete expired events of resumable runs. Safe to repeat."""
    stream_history.delete_expired()
