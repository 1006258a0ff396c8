"""Webhooks on their way: taking those that are due, and writing down what came of them."""

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
"""Seconds before each further attempt; after the last the webhook is given up."""
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
    """One attempt that this process is to make."""

    id: UUID
    attempt: int
    """The token: who holds an older one writes nothing."""
    deployment_id: UUID
    letter: WebhookRequest | DeliveryResult
    """What to send; an outcome where there is nothing to send."""


@dataclass(frozen=True, slots=True)
class _Sender:
    """An agent, as far as its webhooks go."""

    slug: str
    rules: WebhookPolicy
    headers: Mapping[str, str]
    variables: Mapping[str, str]
    keys: tuple[str, ...]
    is_off: bool


def claim(most: int, without: Collection[UUID] = ()) -> list[Delivery]:
    """Take webhooks that are due, of other agents than those; nobody else has them meanwhile.

    What is not recorded within the lease is due again.
    """
    with connection.cursor() as cursor:
        cursor.execute(statements.CLAIM, [list(without), most, LEASE_SECONDS])
        rows = cursor.fetchall()
    senders: dict[UUID, _Sender | None] = {}
    return [_delivery(row, senders) for row in rows]


def _delivery(row: tuple[Any, ...], senders: dict[UUID, _Sender | None]) -> Delivery:
    id_, attempt, workspace_id, deployment_id, run_id, thread_id, url, payload, *times = row
    if deployment_id not in senders:
        senders[deployment_id] = _sender(workspace_id, deployment_id)
    sender = senders[deployment_id]
    letter: WebhookRequest | DeliveryResult
    if sender is None or sender.is_off:
        reason = WEBHOOKS_DISABLED if sender else "The agent is gone."
        letter = DeliveryResult(error=reason, is_final=True)
    else:
        try:
            body = _body(run_id, thread_id, payload, *times)
            letter = _build_request(sender, f"msg_{id_}", url, body)
        except WebhookBlocked as error:
            letter = DeliveryResult(error=error.detail, is_final=True)
    return Delivery(id_, attempt, deployment_id, letter)


def _sender(workspace_id: UUID, deployment_id: UUID) -> _Sender | None:
    rows = Deployment.objects.for_workspace(workspace_id).present()
    found = rows.select_related("active_revision").filter(pk=deployment_id).first()
    if found is None or found.active_revision is None:
        return None
    revision = found.active_revision
    serving = ServingConfig.from_revision(revision.config or {}, revision.facts)
    written = (revision.config or {}).get("env")
    variables = {str(k): str(v) for k, v in written.items()} if isinstance(written, dict) else {}
    if serving.webhooks.headers:
        variables |= environment.revision_variables(revision)
    return _Sender(
        slug=found.slug,
        rules=WebhookPolicy.of(serving.webhooks),
        headers=serving.webhooks.headers,
        variables=variables,
        keys=webhooks.signing_keys(workspace_id, deployment_id),
        is_off=serving.http.disable_webhooks,
    )


def _build_request(sender: _Sender, webhook_id: str, url: str, body: bytes) -> WebhookRequest:
    target, rules = sender.rules.target(url), sender.rules
    own = {
        name: _expand_variables(value, sender.variables) for name, value in sender.headers.items()
    }
    headers = {
        "user-agent": "Slipway-Webhook/1",
        **{name: value for name, value in own.items() if name.lower() not in _RESERVED_HEADERS},
        "content-type": "application/json",
        **sending.signature_headers(sender.keys, webhook_id, int(time.time()), body),
    }
    if target.is_own:
        return WebhookRequest(_own_target(sender.slug, target.path), None, headers, body)
    return WebhookRequest(target, rules, headers, body)


def _own_target(slug: str, path: str) -> Target:
    """A route of the agent itself, by way of this platform's front."""
    front = urlsplit(settings.INTERNAL_URL)
    secure = front.scheme == "https"
    return Target(
        front.hostname or "127.0.0.1",
        front.port or (443 if secure else 80),
        is_secure=secure,
        path=f"{front.path}/agents/{slug}{path}",
    )


def _expand_variables(template: str, variables: Mapping[str, str]) -> str:
    """The header's value; a variable that the agent has not is empty."""
    return _TEMPLATE.sub(lambda found: variables.get(found[1], ""), template).strip()


def _body(  # noqa: PLR0917  (the order of the columns)
    run_id: UUID,
    thread_id: UUID,
    payload: str,
    created_at: datetime,
    started_at: datetime | None,
    ended_at: datetime,
) -> bytes:
    """The run as it ended, with the thread's values of that moment."""
    kept = loads(payload)
    status = kept["status"]
    error = kept.pop("error") or _DEFAULT_ERRORS.get(status)
    whole: dict[str, Any] = {
        "run_id": run_id,
        "thread_id": thread_id,
        **{name: Fragment(dumps(value)) for name, value in kept.items()},
        "created_at": _format_timestamp(created_at),
        "updated_at": _format_timestamp(ended_at),
        "run_started_at": _format_timestamp(started_at),
        "run_ended_at": _format_timestamp(ended_at),
        "webhook_sent_at": _format_timestamp(timezone.now()),
    }
    if status in _DEFAULT_ERRORS:
        whole["error"] = error
    return dumps(whole)


def _format_timestamp(value: datetime | None) -> str | None:
    return value.isoformat(timespec="microseconds") if value else None


def record(delivery: Delivery, outcome: DeliveryResult, seconds: float) -> None:
    """Write down an attempt, and when the next is due. A stale attempt writes nothing."""
    entry = {
        "at": _format_timestamp(timezone.now()),
        "status": outcome.status,
        "error": outcome.error or None,
        "milliseconds": round(seconds * 1000),
    }
    told = [dumps_text(entry), outcome.status, outcome.error, delivery.id, delivery.attempt]
    with connection.cursor() as cursor:
        if outcome.is_delivered:
            cursor.execute(statements.DELIVERED, told)
        elif outcome.is_final or delivery.attempt > len(RETRY_SECONDS):
            cursor.execute(statements.GIVEN_UP, told)
        else:
            cursor.execute(statements.RETRY, [_retry_delay(delivery, outcome), *told])


def _retry_delay(delivery: Delivery, outcome: DeliveryResult) -> float:
    pause = RETRY_SECONDS[delivery.attempt - 1] * random.uniform(1.0, 1.2)  # noqa: S311  (no secret)
    return max(pause, outcome.retry_after)


def delete_old() -> int:
    """Delete the log of webhooks that ended long ago; return how many. Safe to repeat."""
    deleted = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements.DELETE_OLD, [settings.WEBHOOK_LOG_DAYS, DELETE_BATCH_SIZE])
            gone = int(cursor.rowcount)
        deleted += gone
        if gone < DELETE_BATCH_SIZE:
            return deleted
