"""`manage.py prune_audit_log --before DATE`: old entries of the audit log go."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from apps.audit.retention import prune


class Command(BaseCommand):
    help = "Remove entries of the audit log that are older than a day; that, too, is logged."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--before", required=True, type=date.fromisoformat)
        parser.add_argument("--organization", type=UUID, help="of this one alone, by its id")

    def handle(self, *, before: date, organization: UUID | None, **_: Any) -> None:
        if before > datetime.now(UTC).date():
            raise CommandError("That day has not come yet.")
        gone = prune(
            datetime.combine(before, datetime.min.time(), UTC), organization_id=organization
        )
        self.stdout.write(f"{gone} entries from before {before} are gone.")
