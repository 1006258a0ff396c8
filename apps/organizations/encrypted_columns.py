"""The columns that hold encrypted secrets, and their re-encryption after a key change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import InvalidToken
from django.apps import apps
from django.db import models, transaction

from apps.core.secrets import reencrypt

# By model label, because the models belong to higher apps. A test compares this with the models.
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
    """Counts of one column."""

    label: str
    column: str
    renewed: int = 0
    unreadable: int = 0


def reencrypt_all(report: Callable[[ReencryptionResult], object]) -> list[ReencryptionResult]:
    """Encrypt every secret with the first key. Safe to interrupt and repeat.

    A secret that no key decrypts is counted and left unchanged.
    """
    results = []
    for label, columns in ENCRYPTED_COLUMNS.items():
        for column in columns:
            result = _reencrypt_column(apps.get_model(label), label, column)
            report(result)
            results.append(result)
    return results


def _reencrypt_column(model: type[models.Model], label: str, column: str) -> ReencryptionResult:
    result, last = ReencryptionResult(label, column), None
    rows = model._meta.base_manager.exclude(**{column: None}).order_by("pk")
    while True:
        after = rows if last is None else rows.filter(pk__gt=last)
        with transaction.atomic():
            # Lock the rows, so that a concurrent change is not overwritten by the old value.
            page = list(after.select_for_update(no_key=True).values_list("pk", column)[:BATCH_SIZE])
            for pk, token in page:
                _reencrypt_row(model, pk, column, token, result)
        if not page:
            return result
        last = page[-1][0]


def _reencrypt_row(
    model: type[models.Model], pk: Any, column: str, token: memoryview, result: ReencryptionResult
) -> None:
    try:
        new_token = reencrypt(token)
    except InvalidToken:
        result.unreadable += 1
        return
    model._meta.base_manager.filter(pk=pk).update(**{column: new_token})
    result.renewed += 1
