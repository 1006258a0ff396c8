"""Webhooks of prompts: create, change, and enqueue deliveries of an event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.json import dumps
from apps.core.tenancy import get_or_404
from apps.organizations.models import User
from apps.prompts import errors
from apps.prompts.models import Commit, PromptWebhook, Repository, WebhookEvent
from apps.webhooks import delivery_queue, delivery_request, endpoints, policy
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.delivery_worker import OutboundRequest
from apps.webhooks.models import Delivery
from apps.webhooks.signed_request import (
    build_signed_request,
    policy_of_installation,
    send_once,
    validate_headers,
)

KIND = "prompt"
MAX_WEBHOOKS = 20


def webhooks_of(workspace_id: UUID) -> list[PromptWebhook]:
    return list(PromptWebhook.objects.for_workspace(workspace_id).order_by("created_at", "pk"))


@transaction.atomic
def create_webhook(
    *, workspace_id: UUID, fields: Mapping[str, Any], webhook_id: UUID | None = None
) -> tuple[PromptWebhook, str]:
    """Create a webhook and return it with its signing secret.

    Raises `WebhookBlocked` for the address, `BadWebhook`, or `WebhookExists` for a known id.
    """
    rows = PromptWebhook.objects.for_workspace(workspace_id)
    if rows.count() >= MAX_WEBHOOKS:
        raise errors.BadWebhook(f"A workspace has at most {MAX_WEBHOOKS} prompt webhooks.")
    if webhook_id is not None and PromptWebhook.unscoped.filter(pk=webhook_id).exists():
        raise errors.WebhookExists
    webhook = PromptWebhook(workspace_id=workspace_id)
    secret = endpoints.set_new_secret(webhook)
    if webhook_id is not None:
        webhook.pk = webhook_id
    webhook.headers = {}
    _assign(webhook, fields)
    webhook.save(force_insert=True)
    _record(Action.PROMPT_WEBHOOK_CREATED, webhook, after=_audit_values(webhook))
    return webhook, secret


@transaction.atomic
def update_webhook(*, webhook: PromptWebhook, changes: Mapping[str, Any]) -> PromptWebhook:
    """Change the fields. Raises as `create_webhook`."""
    rows = PromptWebhook.objects.for_workspace(webhook.workspace_id)
    row = get_or_404(rows.select_for_update(no_key=True), pk=webhook.pk)
    before = _audit_values(row)
    _assign(row, changes)
    row.save()
    _record(Action.PROMPT_WEBHOOK_UPDATED, row, before=before, after=_audit_values(row))
    return row


@transaction.atomic
def replace_secret(*, webhook: PromptWebhook) -> str:
    """Replace the signing secret and return the new one."""
    secret = endpoints.set_new_secret(webhook)
    webhook.save(update_fields=["secret", "updated_at"])
    _record(Action.PROMPT_WEBHOOK_UPDATED, webhook, after=_audit_values(webhook))
    return secret


@transaction.atomic
def delete_webhook(*, webhook: PromptWebhook) -> None:
    """Delete the webhook with its unsent deliveries and its log."""
    _record(Action.PROMPT_WEBHOOK_DELETED, webhook, before=_audit_values(webhook))
    endpoints.delete_with_deliveries(webhook)


def _assign(webhook: PromptWebhook, fields: Mapping[str, Any]) -> None:
    endpoints.assign_address(webhook, fields)
    known = set(
        Repository.objects.for_workspace(webhook.workspace_id)
        .filter(pk__in=[*fields.get("include_prompts", ()), *fields.get("exclude_prompts", ())])
        .values_list("pk", flat=True)
    )
    for name in ("include_prompts", "exclude_prompts"):
        if set(fields.get(name, ())) - known:
            raise errors.BadWebhook(f"`{name}` has the id of no prompt of this workspace.")
    for name in ("include_prompts", "exclude_prompts", "triggers"):
        if name in fields:
            setattr(webhook, name, list(dict.fromkeys(fields[name])))


def enqueue(
    event: WebhookEvent,
    commit: Commit,
    *,
    tag_name: str = "",
    author_id: UUID | None = None,
    skipped: bool | Collection[UUID] = (),
) -> None:
    """Insert a delivery for each webhook of the event, in the transaction of the event.

    `skipped` is True for all webhooks, or the ids of those that are not to be sent.
    """
    if skipped is True:
        return
    webhooks = PromptWebhook.objects.for_workspace(commit.workspace_id)
    ids = set(
        webhooks.triggered_by(event, commit.repository_id).values_list("pk", flat=True)
    ) - set(skipped or ())
    if not ids:
        return
    author = User.objects.filter(pk=author_id).first() if author_id is not None else None
    payload = {
        "event": event,
        "prompt_id": commit.repository_id,
        "prompt_name": commit.repository.handle,
        "commit_hash": commit.commit_hash,
        "created_at": timezone.now(),
        "created_by": author.display_name if author is not None else "",
        **({"tag_name": tag_name} if event != WebhookEvent.COMMIT else {}),
    }
    delivery_queue.enqueue(
        [
            Delivery(
                workspace_id=commit.workspace_id,
                kind=KIND,
                endpoint_id=id_,
                subject_id=commit.repository_id,
                event=event,
                payload=payload,
            )
            for id_ in sorted(ids)
        ]
    )


def build_delivery_request(delivery: Delivery) -> OutboundRequest | DeliveryResult:
    """Build the request of a delivery, with the manifest, which is not copied to each delivery."""
    webhooks = PromptWebhook.objects.for_workspace(delivery.workspace_id)
    webhook = webhooks.filter(pk=delivery.endpoint_id).first()
    commits = Commit.objects.for_workspace(delivery.workspace_id)
    commit = commits.filter(
        repository=delivery.subject_id, commit_hash=delivery.payload["commit_hash"]
    ).first()
    if webhook is None or commit is None:
        return DeliveryResult(error="The webhook or the prompt was deleted.", is_final=True)
    payload = delivery.payload | {"manifest": commit.manifest}
    return endpoints.build_endpoint_request(webhook, delivery, payload)


def send_test(
    *, organization_id: UUID, fields: Mapping[str, Any], payload: Mapping[str, Any]
) -> DeliveryResult:
    """Send the payload once to the unsaved webhook of an organization.

    Raises `WebhookBlocked` or `InvalidHeaders`, and `RateLimited` if other tests are running.
    """
    url = policy.validate(fields["url"], policy_of_installation(), organization_id)
    headers = validate_headers(fields.get("headers", {}))
    secret = delivery_request.generate_secret()
    request = build_signed_request(url, headers, secret, "msg_test", dumps(payload))
    return send_once(request, owner_id=organization_id)


def _audit_values(webhook: PromptWebhook) -> dict[str, Any]:
    return {
        "url": webhook.url,
        "triggers": webhook.triggers,
        "headers": sorted(webhook.headers),
        "include_prompts": webhook.include_prompts,
        "exclude_prompts": webhook.exclude_prompts,
    }


def _record(action: Action, webhook: PromptWebhook, **values: Any) -> None:
    target = Target("prompt_webhook", webhook.pk, webhook.url)
    record(action, target, workspace_id=webhook.workspace_id, **values)
