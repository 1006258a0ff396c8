"""Sends the webhooks of ended runs. It is woken when a run with a webhook ends in this process."""

from __future__ import annotations

from apps.agent_server.services import deliveries
from apps.webhooks.delivery_worker import lazy_delivery_worker

_worker = lazy_delivery_worker(deliveries)
wake, stop = _worker.wake, _worker.stop
