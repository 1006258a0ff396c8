"""Claims due webhook deliveries and records the result of each attempt."""

from __future__ import annotations

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
from apps.agent_server.webhooks import statements
from apps.agent_server.webhooks.rules import policy_of
from apps.core.json import Fragment, dumps, dumps_text, loads_exact
from apps.deployments.models import Deployment
from apps.deployments.routes import ServingConfig
from apps.deployments.services import environment
from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.delivery_worker import (
    LEASE_SECONDS,
    RETRY_SECONDS,
    ClaimedDelivery,
    retry_delay,
)
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy, WebhookTarget

DELETE_BATCH_SIZE = 1_000
WEBHOOKS_DISABLED = "The agent's langgraph.json disables webhooks."
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
class Sender:
    """The webhook configuration of an agent."""

    slug: str
    rules: WebhookPolicy
    headers: Mapping[str, str]
    variables: Mapping[str, str]
    keys: tuple[str, ...]
    is_disabled: bool


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedDelivery]:
    """Claim due webhooks of all deployments that are not excluded, nor their organizations.

    A delivery whose result is not recorded within the lease is due again.
    """
    with connection.cursor() as cursor:
        params: list[Any] = [list(excluded), list(excluded), limit, LEASE_SECONDS]
        cursor.execute(statements.CLAIM, params)
        rows = cursor.fetchall()
    senders: dict[UUID, Sender | None] = {}
    return [_build_delivery(row, senders) for row in rows]


def _build_delivery(row: tuple[Any, ...], senders: dict[UUID, Sender | None]) -> ClaimedDelivery:
    id_, attempt, workspace_id, deployment_id, run_id, thread_id, url, payload, *rest = row
    *times, organization_id = rest
    if deployment_id not in senders:
        senders[deployment_id] = load_sender(workspace_id, deployment_id)
    sender = senders[deployment_id]
    request: WebhookRequest | DeliveryResult
    if sender is None or sender.is_disabled:
        reason = WEBHOOKS_DISABLED if sender else "The agent was deleted or has no active revision."
        request = DeliveryResult(error=reason, is_final=True)
    else:
        try:
            body = _build_body(run_id, thread_id, payload, *times)
            request = _build_request(sender, f"msg_{id_}", url, body)
        except WebhookBlocked as error:
            request = DeliveryResult(error=error.detail, is_final=True)
    return ClaimedDelivery(id_, attempt, deployment_id, request, organization_id)


def load_sender(workspace_id: UUID, deployment_id: UUID) -> Sender | None:
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
    return Sender(
        slug=deployment.slug,
        rules=policy_of(serving.webhooks),
        headers=serving.webhooks.headers,
        variables=variables,
        keys=webhooks.signing_keys(workspace_id, deployment_id),
        is_disabled=serving.http.disable_webhooks,
    )


def _build_request(sender: Sender, webhook_id: str, url: str, body: bytes) -> WebhookRequest:
    target, rules = sender.rules.parse_target(url), sender.rules
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
        **delivery_request.signature_headers(sender.keys, webhook_id, int(time.time()), body),
    }
    if target.is_own:
        return WebhookRequest(_own_target(sender.slug, target.path), None, headers, body)
    return WebhookRequest(target, rules, headers, body)


def _own_target(slug: str, path: str) -> WebhookTarget:
    """The address of the agent's own route on this platform."""
    base = urlsplit(settings.INTERNAL_URL)
    secure = base.scheme == "https"
    return WebhookTarget(
        base.hostname or "127.0.0.1",
        base.port or (443 if secure else 80),
        is_secure=secure,
        path=f"{base.path}/agents/{slug}{path}",
    )


def _expand_variables(template: str, variables: Mapping[str, str]) -> str:
    """Expand `${{ env.NAME }}` in a header; unknown variables are empty."""
    return _TEMPLATE.sub(lambda match: variables.get(match[1], ""), template).strip()


def _build_body(  # noqa: PLR0917  (columns of `CLAIM`)
    run_id: UUID,
    thread_id: UUID,
    payload: str,
    created_at: datetime,
    started_at: datetime | None,
    ended_at: datetime,
) -> bytes:
    """The request body: the run at its end, with the thread's values at that time."""
    fields = loads_exact(payload)
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


def record(delivery: ClaimedDelivery, result: DeliveryResult, seconds: float) -> None:
    """Record an attempt and schedule the next one. The result of a stale attempt is discarded."""
    entry = {
        "at": _format_timestamp(timezone.now()),
        "status": result.status,
        "error": result.error or None,
        "milliseconds": round(seconds * 1000),
    }
    params = [dumps_text(entry), result.status, result.error, delivery.id, delivery.attempt]
    with connection.cursor() as cursor:
        if result.is_delivered:
            cursor.execute(statements.DELIVERED, params)
            return
        delay = retry_delay(delivery.attempt, result, RETRY_SECONDS)
        if delay is None:
            cursor.execute(statements.GIVEN_UP, params)
        else:
            cursor.execute(statements.RETRY, [delay, *params])


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
