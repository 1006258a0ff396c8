"""Webhook deliveries: claims due ones and records the result of each attempt."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from apps.agent_server.services import webhooks
from apps.agent_server.webhooks import sending, statements
from apps.agent_server.webhooks.rules import Target, WebhookBlocked, WebhookPolicy
from apps.agent_server.webhooks.sending import TIMEOUT_SECONDS, DeliveryResult, WebhookRequest
from apps.core.json import Fragment, dumps, dumps_text, loads
from apps.deployments.models import Deployment
from apps.deployments.services import environment
from apps.deployments.serving_config import ServingConfig

LEASE_SECONDS = TIMEOUT_SECONDS + 45
RETRY_SECONDS = (1, 5, 30, 120, 600, 1800, 7200, 18_000)
"""Delay before each retry; after the last one the delivery is given up."""
DELETE_BATCH_SIZE = 1_000
WEBHOOKS_DISABLED = "The agent's langgraph.json switches webhooks off."
_TEMPLATE = re.compile(r"\$\{\{\s*env\.(\w+)\s*\}\}")
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection"}
)
_DEFAULT_ERRORS = {
    "interrupted": {"error": "UserInterrupt", "message": "The run was cancelled."},
    "timeout": {"error": "TimeoutError", "message": "The run took too long."},
    "error": {"error": "RuntimeError", "message": "The run failed."},
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    """The fencing token: a stale attempt writes nothing."""
    deployment_id: UUID
    request: WebhookRequest | DeliveryResult
    """The request to send, or the result if nothing is to be sent."""


@dataclass(frozen=True, slots=True)
class _Sender:
    """The webhook configuration of an agent."""

    slug: str
    rules: WebhookPolicy
    headers: Mapping[str, str]
    variables: Mapping[str, str]
    keys: tuple[str, ...]
    is_off: bool


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[Delivery]:
    """Claim due webhooks of all deployments that are not excluded.

    A delivery whose result is not recorded within the lease is due again.
    """
    with connection.cursor() as cursor:
        cursor.execute(statements.CLAIM, [list(excluded), limit, LEASE_SECONDS])
        rows = cursor.fetchall()
    senders: dict[UUID, _Sender | None] = {}
    return [_delivery(row, senders) for row in rows]


def _delivery(row: tuple[Any, ...], senders: dict[UUID, _Sender | None]) -> Delivery:
    id_, attempt, workspace_id, deployment_id, run_id, thread_id, url, payload, *times = row
    if deployment_id not in senders:
        senders[deployment_id] = _sender(workspace_id, deployment_id)
    sender = senders[deployment_id]
    request: WebhookRequest | DeliveryResult
    if sender is None or sender.is_off:
        reason = WEBHOOKS_DISABLED if sender else "The agent is gone."
        request = DeliveryResult(error=reason, is_final=True)
    else:
        try:
            body = _body(run_id, thread_id, payload, *times)
            request = _build_request(sender, f"msg_{id_}", url, body)
        except WebhookBlocked as error:
            request = DeliveryResult(error=error.detail, is_final=True)
    return Delivery(id_, attempt, deployment_id, request)


def _sender(workspace_id: UUID, deployment_id: UUID) -> _Sender | None:
    rows = Deployment.objects.for_workspace(workspace_id).present()
    deployment = rows.select_related("active_revision").filter(pk=deployment_id).first()
    if deployment is None or deployment.active_revision is None:
        return None
    revision = deployment.active_revision
    serving = ServingConfig.from_revision(revision.config or {}, revision.facts)
    env = (revision.config or {}).get("env")
    variables = {str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {}
    if serving.webhooks.headers:
        variables |= environment.revision_variables(revision)
    return _Sender(
        slug=deployment.slug,
        rules=WebhookPolicy.of(serving.webhooks),
        headers=serving.webhooks.headers,
        variables=variables,
        keys=webhooks.signing_keys(workspace_id, deployment_id),
        is_off=serving.http.disable_webhooks,
    )


def _build_request(sender: _Sender, webhook_id: str, url: str, body: bytes) -> WebhookRequest:
    target, rules = sender.rules.target(url), sender.rules
    custom_headers = {
        name: _expand_variables(value, sender.variables) for name, value in sender.headers.items()
    }
    headers = {
        "user-agent": "Slipway-Webhook/1",
        **{
            name: value
            for name, value in custom_headers.items()
            if name.lower() not in _RESERVED_HEADERS
        },
        "content-type": "application/json",
        **sending.signature_headers(sender.keys, webhook_id, int(time.time()), body),
    }
    if target.is_own:
        return WebhookRequest(_own_target(sender.slug, target.path), None, headers, body)
    return WebhookRequest(target, rules, headers, body)


def _own_target(slug: str, path: str) -> Target:
    """The address of the agent's own route on this platform."""
    base = urlsplit(settings.INTERNAL_URL)
    secure = base.scheme == "https"
    return Target(
        base.hostname or "127.0.0.1",
        base.port or (443 if secure else 80),
        is_secure=secure,
        path=f"{base.path}/agents/{slug}{path}",
    )


def _expand_variables(template: str, variables: Mapping[str, str]) -> str:
    """Expand `${{ env.NAME }}` in a header; unknown variables are empty."""
    return _TEMPLATE.sub(lambda match: variables.get(match[1], ""), template).strip()


def _body(  # noqa: PLR0917  (the order of the columns)
    run_id: UUID,
    thread_id: UUID,
    payload: str,
    created_at: datetime,
    started_at: datetime | None,
    ended_at: datetime,
) -> bytes:
    """The request body: the run at its end, with the thread's values at that time."""
    fields = loads(payload)
    status = fields["status"]
    error = fields.pop("error") or _DEFAULT_ERRORS.get(status)
    body: dict[str, Any] = {
        "run_id": run_id,
        "thread_id": thread_id,
        **{name: Fragment(dumps(value)) for name, value in fields.items()},
        "created_at": _format_timestamp(created_at),
        "updated_at": _format_timestamp(ended_at),
        "run_started_at": _format_timestamp(started_at),
        "run_ended_at": _format_timestamp(ended_at),
        "webhook_sent_at": _format_timestamp(timezone.now()),
    }
    if status in _DEFAULT_ERRORS:
        body["error"] = error
    return dumps(body)


def _format_timestamp(value: datetime | None) -> str | None:
    return value.isoformat(timespec="microseconds") if value else None


def record(delivery: Delivery, outcome: DeliveryResult, seconds: float) -> None:
    """Record an attempt and schedule the next one. A stale attempt writes nothing."""
    entry = {
        "at": _format_timestamp(timezone.now()),
        "status": outcome.status,
        "error": outcome.error or None,
        "milliseconds": round(seconds * 1000),
    }
    params = [dumps_text(entry), outcome.status, outcome.error, delivery.id, delivery.attempt]
    with connection.cursor() as cursor:
        if outcome.is_delivered:
            cursor.execute(statements.DELIVERED, params)
        elif outcome.is_final or delivery.attempt > len(RETRY_SECONDS):
            cursor.execute(statements.GIVEN_UP, params)
        else:
            cursor.execute(statements.RETRY, [_retry_delay(delivery, outcome), *params])


def _retry_delay(delivery: Delivery, outcome: DeliveryResult) -> float:
    pause = RETRY_SECONDS[delivery.attempt - 1] * random.uniform(1.0, 1.2)  # noqa: S311  (no secret)
    return max(pause, outcome.retry_after)


def delete_old() -> int:
    """Delete old finished deliveries; return how many. Safe to repeat."""
    deleted = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements.DELETE_OLD, [settings.WEBHOOK_LOG_DAYS, DELETE_BATCH_SIZE])
            batch_deleted = int(cursor.rowcount)
        deleted += batch_deleted
        if batch_deleted < DELETE_BATCH_SIZE:
            return deleted
