"""Webhooks of prompts: create, change, and enqueue deliveries of an event."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.core import secrets
from apps.core.json import dumps
from apps.core.tenancy import get_or_404
from apps.organizations.models import User
from apps.prompts import dispatch, errors
from apps.prompts.models import (
    Commit,
    PromptWebhook,
    PromptWebhookDelivery,
    Repository,
    WebhookEvent,
)
from apps.webhooks import delivery_request, policy
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.policy import WebhookPolicy

MAX_WEBHOOKS = 20
MAX_HEADERS = 20
MAX_HEADER_LENGTH = 4096
MASK = "*" * 16
TEST_TIMEOUT_SECONDS = 5.0
_MAX_TESTS = 2
_test_slots = threading.BoundedSemaphore(_MAX_TESTS)
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


def policy_of_installation() -> WebhookPolicy:
    """Public addresses; private ones where the operator allows them."""
    allows_private = settings.ALLOW_PRIVATE_ADDRESSES or settings.ALLOW_LOCAL_WEBHOOKS
    return WebhookPolicy(allows_private=allows_private)


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
    secret = delivery_request.generate_secret()
    webhook = PromptWebhook(workspace_id=workspace_id, secret=secrets.encrypt(secret))
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
    secret = delivery_request.generate_secret()
    webhook.secret = secrets.encrypt(secret)
    webhook.save(update_fields=["secret", "updated_at"])
    _record(Action.PROMPT_WEBHOOK_UPDATED, webhook, after=_audit_values(webhook))
    return secret


@transaction.atomic
def delete_webhook(*, webhook: PromptWebhook) -> None:
    """Delete the webhook with its unsent deliveries and its log."""
    _record(Action.PROMPT_WEBHOOK_DELETED, webhook, before=_audit_values(webhook))
    webhook.delete()


def _assign(webhook: PromptWebhook, fields: Mapping[str, Any]) -> None:
    if "url" in fields:
        url = fields["url"]
        if url.startswith("/"):
            raise errors.BadWebhook("`url` must be an absolute address.")
        webhook.url = policy.validate(url, policy_of_installation())
    if "headers" in fields:
        webhook.headers = _validate_headers(fields["headers"])
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


def _validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    if len(headers) > MAX_HEADERS:
        raise errors.BadWebhook(f"A webhook has at most {MAX_HEADERS} headers.")
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None or _HEADER_VALUE.fullmatch(value) is None:
            raise errors.BadWebhook("The name or the value of a header is invalid.")
        if len(value) > MAX_HEADER_LENGTH:
            raise errors.BadWebhook(f"A header has at most {MAX_HEADER_LENGTH} characters.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("webhook-"):
            raise errors.BadWebhook(f"The header `{name}` is set by this server.")
        if value == MASK:
            raise errors.BadWebhook("A masked header must be replaced by its value.")
    return dict(headers)


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
    PromptWebhookDelivery.objects.for_workspace(commit.workspace_id).bulk_create(
        PromptWebhookDelivery(
            workspace_id=commit.workspace_id,
            webhook_id=id_,
            commit=commit,
            event=event,
            tag_name=tag_name,
            author=author.display_name if author is not None else "",
        )
        for id_ in sorted(ids)
    )
    dispatch.deliver_webhooks()


def send_test(*, fields: Mapping[str, Any], payload: Mapping[str, Any]) -> DeliveryResult:
    """Send the payload once to the unsaved webhook.

    It holds a web thread, so a process runs few at a time. Raises `WebhookBlocked` or `BadWebhook`,
    and `RateLimited` if there are too many.
    """
    if not _test_slots.acquire(blocking=False):
        raise core_errors.RateLimited("Other webhooks are being tested. Retry in a moment.")
    try:
        return _send_test(fields, payload)
    finally:
        _test_slots.release()


def _send_test(fields: Mapping[str, Any], payload: Mapping[str, Any]) -> DeliveryResult:
    webhook = PromptWebhook(url=fields["url"])
    policy.validate(webhook.url, policy_of_installation())
    headers = _validate_headers(fields.get("headers", {}))
    request = build_request(
        webhook.url, headers, delivery_request.generate_secret(), "msg_test", dumps(payload)
    )
    return asyncio.run(delivery_request.send(request, seconds=TEST_TIMEOUT_SECONDS))


def build_request(
    url: str, headers: Mapping[str, str], secret: str, message_id: str, body: bytes
) -> WebhookRequest:
    """Return the signed request. Raises `WebhookBlocked` if the policy forbids the address now."""
    rules = policy_of_installation()
    return WebhookRequest(
        rules.parse_target(url),
        rules,
        {
            "user-agent": "Slipway-Webhook/1",
            **headers,
            "content-type": "application/json",
            **delivery_request.signature_headers([secret], message_id, int(time.time()), body),
        },
        body,
    )


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
