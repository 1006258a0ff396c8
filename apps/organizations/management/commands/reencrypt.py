"""`manage.py reencrypt`: encrypt every secret with the first of ENCRYPTION_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.organizations.encrypted_columns import ReencryptionResult, reencrypt_all


class Command(BaseCommand):
    help = "Encrypt every secret with the first of ENCRYPTION_KEYS; the others are then unused."

    def handle(self, *_: Any, **__: Any) -> None:
        results = reencrypt_all(self._report)
        lost = sum(result.unreadable for result in results)
        if lost:
            raise CommandError(
                f"No key in ENCRYPTION_KEYS decrypts {lost} secrets; they are unchanged."
            )
        self.stdout.write(
            f"{sum(result.renewed for result in results)} secrets are encrypted with the first key."
        )

    def _report(self, result: ReencryptionResult) -> None:
        self.stdout.write(f"{result.label}.{result.column}: {result.renewed} re-encrypted")
