"""`manage.py reencrypt`: every secret under the first of ENCRYPTION_KEYS, so that others can go."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.organizations.encrypted_columns import ReencryptionResult, reencrypt_all


class Command(BaseCommand):
    help = "Write every secret anew under the first of ENCRYPTION_KEYS; then the others can go."

    def handle(self, *_: Any, **__: Any) -> None:
        found = reencrypt_all(self._tell)
        lost = sum(one.unreadable for one in found)
        if lost:
            raise CommandError(
                f"{lost} secrets are opened by none of the keys; they are as before."
            )
        self.stdout.write(f"{sum(one.renewed for one in found)} secrets are under the first key.")

    def _tell(self, one: ReencryptionResult) -> None:
        self.stdout.write(f"{one.label}.{one.column}: {one.renewed} renewed")
