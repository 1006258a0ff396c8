"""Sends the webhooks of ended runs. It is woken when a run with a webhook ends in this process."""

from __future__ import annotations

from apps.agent_server.services import deliveries
from apps.webhooks.delivery_worker import LazyDeliveryWorker

_worker = LazyDeliveryWorker(deliveries)
wake, stop = _worker.wake, _worker.stop
