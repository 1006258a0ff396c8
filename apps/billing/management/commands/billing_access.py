"""`manage.py billing_access`: let installations of other regions write billing records here."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.billing import database
from apps.core.instance import BILLING_ROLE
from apps.core.regions import REGIONS


class Command(BaseCommand):
    help = "Grant a PostgreSQL role access to billing's tables only."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--role", default=BILLING_ROLE, metavar="NAME")

    def handle(self, *_: Any, **options: Any) -> None:
        role = options["role"]
        if not REGIONS[settings.REGION].keeps_billing:
            raise CommandError("Billing records are in the US. Run this command there.")
        if not database.role_exists(role):
            raise CommandError(
                f"Role {role!r} does not exist. Create it as a PostgreSQL administrator:"
                f" CREATE ROLE {role} LOGIN PASSWORD '...';"
            )
        database.grant_privileges(role)
        self.stdout.write(
            f"{role} may read and write billing accounts and read payments. Other regions set"
            f" BILLING_DATABASE_URL to this database with that role."
        )
