"""Celery tasks of deliveries."""

from __future__ import annotations

from celery import shared_task

from apps.webhooks import delivery_queue
from apps.webhooks.delivery_worker import lazy_delivery_worker

delivery_worker = lazy_delivery_worker(delivery_queue)


@shared_task(name="webhooks.deliver", acks_late=False, expires=10)
def deliver() -> None:
    """Send due deliveries. Safe to repeat: each is claimed."""
    delivery_worker.wake()


@shared_task(name="webhooks.delete_old_deliveries", acks_late=False)
def delete_old_deliveries() -> None:
    """Delete old deliveries. Safe to repeat."""
    delivery_queue.delete_old()
