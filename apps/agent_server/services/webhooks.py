"""Webhooks: what becomes of a run is told to an address of the caller's choice."""

from __future__ import annotations

from apps.agent_server.webhooks.rules import WebhookBlocked, validate

__all__ = ["WebhookBlocked", "validate"]
