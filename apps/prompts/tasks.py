"""Celery tasks of prompts."""

from __future__ import annotations

from celery import shared_task

from apps.prompts.services import webhook_deliveries
from apps.webhooks.delivery_worker import LazyDeliveryWorker

delivery_worker = LazyDeliveryWorker(webhook_deliveries)


@shared_task(name="prompts.deliver_webhooks", acks_late=False, expires=10)
def deliver_webhooks() -> None:
    """Send due webhooks. Safe to repeat: each is claimed."""
    delivery_worker.wake()


@shared_task(name="prompts.delete_old_deliveries", acks_late=False)
def delete_old_deliveries() -> None:
    """Delete old webhook deliveries. Safe to repeat."""
    webhook_deliveries.delete_old()
