"""The columns that hold encrypted secrets, and their re-encryption after a key change."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
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
    "deployments.DeploymentWebhook": ("encrypted_headers", "secret"),
    "exports.Destination": ("secret",),
    "agent_server.WebhookSecret": ("secret", "previous"),
    "agent_server.A2APushConfig": ("encrypted_secrets",),
    "feedback.FeedbackToken": ("token",),
    "alerts.AlertAction": ("encrypted_config", "secret"),
    "prompts.PromptWebhook": ("encrypted_headers", "secret"),
}
# Encrypted texts inside JSON columns: column and keys, whose values are a text or a list of texts.
ENCRYPTED_JSON: dict[str, tuple[str, tuple[str, ...]]] = {
    "mfa.Authenticator": ("data", ("secret", "seed", "migrated_codes")),
}
BATCH_SIZE = 500

Renewal = Callable[[Any], object]
"""Encrypts a column's value with the first key."""


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
    renewals: list[tuple[str, str, Renewal]] = [
        (label, column, reencrypt)
        for label, columns in ENCRYPTED_COLUMNS.items()
        for column in columns
    ]
    for label, (column, keys) in ENCRYPTED_JSON.items():
        renewals.append((label, column, partial(_reencrypt_json, keys)))
    for label, column, renew in renewals:
        result = _reencrypt_column(apps.get_model(label), label, column, renew)
        report(result)
        results.append(result)
    return results


def _reencrypt_json(keys: Collection[str], data: dict[str, Any]) -> dict[str, Any]:
    """Return the value of a JSON column with the texts of these keys re-encrypted."""
    return {
        name: _reencrypt_texts(value) if name in keys else value for name, value in data.items()
    }


def _reencrypt_texts(value: str | list[str]) -> str | list[str]:
    if isinstance(value, str):
        return reencrypt(value.encode()).decode()
    return [reencrypt(text.encode()).decode() for text in value]


def _reencrypt_column(
    model: type[models.Model], label: str, column: str, renew: Renewal
) -> ReencryptionResult:
    result, last = ReencryptionResult(label, column), None
    rows = model._meta.base_manager.exclude(**{column: None}).order_by("pk")
    while True:
        after = rows if last is None else rows.filter(pk__gt=last)
        with transaction.atomic():
            # Lock the rows, so that a concurrent change is not overwritten by the old value.
            page = list(after.select_for_update(no_key=True).values_list("pk", column)[:BATCH_SIZE])
            for pk, token in page:
                _reencrypt_row(model, pk, {column: token}, renew, result)
        if not page:
            return result
        last = page[-1][0]


def _reencrypt_row(
    model: type[models.Model],
    pk: Any,
    values: dict[str, Any],
    renew: Renewal,
    result: ReencryptionResult,
) -> None:
    try:
        new_values = {column: renew(value) for column, value in values.items()}
    except InvalidToken:
        result.unreadable += 1
        return
    model._meta.base_manager.filter(pk=pk).update(**new_values)
    result.renewed += 1
