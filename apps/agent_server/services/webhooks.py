"""Webhooks: lists deliveries and manages signing secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from apps.agent_server.models import Thread, WebhookDelivery, WebhookSecret
from apps.agent_server.scope import Scope
from apps.agent_server.webhooks.rules import validate
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import secrets
from apps.deployments.models import Deployment
from apps.webhooks import delivery_request
from apps.webhooks.policy import WebhookBlocked

__all__ = [
    "WebhookBlocked",
    "create_secret",
    "get_secret",
    "list_for_run",
    "replace_secret",
    "validate",
]

PREVIOUS_SECRET_LIFETIME = timedelta(days=1)


class Secret(NamedTuple):
    """A signing secret, with which receivers verify signatures."""

    text: str
    created_at: datetime
    previous_signs_until: datetime | None


def list_for_run(
    scope: Scope, run_id: UUID, thread_id: UUID | None = None
) -> list[WebhookDelivery]:
    """The run's webhook deliveries, at most one; without `thread_id`, on any thread."""
    route = scope.route
    rows = WebhookDelivery.objects.for_workspace(route.workspace_id)
    rows = rows.filter(deployment=route.deployment_id, run_id=run_id)
    if thread_id is not None:
        rows = rows.filter(thread_id=thread_id)
    if scope.visible != "{}":
        threads = Thread.objects.for_workspace(route.workspace_id).with_metadata(scope.visible)
        visible_thread = threads.filter(
            deployment=route.deployment_id, thread_id=OuterRef("thread_id")
        )
        rows = rows.filter(Exists(visible_thread))
    return list(rows.defer("payload"))


def create_secret(deployment: Deployment) -> Secret:
    """Create the deployment's secret; an existing one is returned unchanged."""
    return _to_secret(_secret_row(deployment.workspace_id, deployment.pk))


def create_secret_of_new(instance: Deployment, *, created: bool, **_: object) -> None:
    """Create the secret with its deployment: reading it must not write."""
    if created:
        create_secret(instance)


def get_secret(deployment: Deployment) -> Secret | None:
    """The deployment's secret; None for a deployment from before secrets were created with it."""
    rows = WebhookSecret.objects.for_workspace(deployment.workspace_id)
    row = rows.filter(deployment=deployment).first()
    return None if row is None else _to_secret(row)


@transaction.atomic
def replace_secret(*, deployment: Deployment) -> Secret:
    """Replace the secret; the previous one also signs for one more day."""
    _secret_row(deployment.workspace_id, deployment.pk)
    rows = WebhookSecret.objects.for_workspace(deployment.workspace_id)
    row = rows.select_for_update(no_key=True).get(deployment=deployment)
    row.previous, row.secret = row.secret, secrets.encrypt(delivery_request.generate_secret())
    row.replaced_at = timezone.now()
    row.save(update_fields=["previous", "secret", "replaced_at"])
    record(
        Action.WEBHOOK_SECRET_REPLACED,
        Target("deployment", deployment.pk, deployment.name),
        workspace_id=deployment.workspace_id,
    )
    return _to_secret(row)


def signing_keys(workspace_id: UUID, deployment_id: UUID) -> tuple[str, ...]:
    """The current signing keys, newest first."""
    row = _secret_row(workspace_id, deployment_id)
    keys = [row.secret]
    if row.previous is not None and _previous_valid_until(row) is not None:
        keys.append(row.previous)
    return tuple(secrets.decrypt(key) for key in keys)


def _secret_row(workspace_id: UUID, deployment_id: UUID) -> WebhookSecret:
    rows = WebhookSecret.objects.for_workspace(workspace_id)
    row, _ = rows.get_or_create(
        workspace_id=workspace_id,
        deployment_id=deployment_id,
        defaults={"secret": secrets.encrypt(delivery_request.generate_secret())},
    )
    return row


def _to_secret(row: WebhookSecret) -> Secret:
    since = row.replaced_at or row.created_at
    return Secret(secrets.decrypt(row.secret), since, _previous_valid_until(row))


def _previous_valid_until(row: WebhookSecret) -> datetime | None:
    if row.previous is None or row.replaced_at is None:
        return None
    until = row.replaced_at + PREVIOUS_SECRET_LIFETIME
    return until if until > timezone.now() else None
