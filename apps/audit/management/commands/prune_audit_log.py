"""`manage.py prune_audit_log --before DATE`: delete old audit entries."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from apps.audit.services import prune


class Command(BaseCommand):
    help = "Delete audit entries from before a date. The deletion itself is recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--before", required=True, type=date.fromisoformat)
        parser.add_argument(
            "--organization", type=UUID, help="id of the organization; default: all"
        )

    def handle(self, *, before: date, organization: UUID | None, **_: Any) -> None:
        if before > datetime.now(UTC).date():
            raise CommandError("--before must not be in the future.")
        deleted = prune(
            datetime.combine(before, datetime.min.time(), UTC), organization_id=organization
        )
        self.stdout.write(f"Deleted {deleted} entries from before {before}.")
