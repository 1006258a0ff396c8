"""Every column that holds an encrypted secret, and renewing them all when the key is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import InvalidToken
from django.apps import apps
from django.db import models, transaction

from apps.core.secrets import reencrypt

# By label, so that this app need not know those above it. A test compares it with the models.
ENCRYPTED_COLUMNS: dict[str, tuple[str, ...]] = {
    "organizations.WorkspaceSecret": ("value",),
    "deployments.Deployment": ("ingest_secret",),
    "deployments.EnvironmentVariable": ("value",),
    "deployments.Revision": ("environment",),
    "exports.Destination": ("secret",),
    "agent_server.WebhookSecret": ("secret", "previous"),
    "feedback.FeedbackToken": ("token",),
}
BATCH_SIZE = 500


@dataclass
class ReencryptionResult:
    """How it went with one column."""

    label: str
    column: str
    renewed: int = 0
    unreadable: int = 0


def reencrypt_all(told: Callable[[ReencryptionResult], object]) -> list[ReencryptionResult]:
    """Write every secret anew under the first key. May be broken off and repeated.

    A secret that no key opens is counted and left as it is.
    """
    found = []
    for label, columns in ENCRYPTED_COLUMNS.items():
        for column in columns:
            one = _renew(apps.get_model(label), label, column)
            told(one)
            found.append(one)
    return found


def _renew(model: type[models.Model], label: str, column: str) -> ReencryptionResult:
    counted, last = ReencryptionResult(label, column), None
    rows = model._meta.base_manager.exclude(**{column: None}).order_by("pk")
    while True:
        after = rows if last is None else rows.filter(pk__gt=last)
        with transaction.atomic():
            # Held, so that what somebody sets meanwhile is not overwritten with what was there.
            page = list(after.select_for_update(no_key=True).values_list("pk", column)[:BATCH_SIZE])
            for pk, token in page:
                _write(model, pk, column, token, counted)
        if not page:
            return counted
        last = page[-1][0]


def _write(
    model: type[models.Model], pk: Any, column: str, token: memoryview, counted: ReencryptionResult
) -> None:
    try:
        fresh = reencrypt(token)
    except InvalidToken:
        counted.unreadable += 1
        return
    model._meta.base_manager.filter(pk=pk).update(**{column: fresh})
    counted.renewed += 1
