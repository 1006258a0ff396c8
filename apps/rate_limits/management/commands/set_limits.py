"""`manage.py set_limits`: raise or lower the limits of one organization."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core import errors
from apps.organizations.models import Organization
from apps.rate_limits import factors
from apps.rate_limits.table import CATEGORIES


class Command(BaseCommand):
    help = "Multiply the rate limits of an organization; every process feels it within a second."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument(
            "--row",
            default="",
            metavar="CATEGORY",
            help=f"one of: {', '.join(CATEGORIES)}; without it all rows",
        )
        parser.add_argument(
            "--factor", required=True, type=float, metavar="N", help="1 is as the table has it"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        organization = Organization.objects.filter(name=options["organization"]).first()
        if organization is None:
            raise CommandError(f"There is no organization {options['organization']!r}.")
        category = _category(options["row"])
        try:
            factors.set_factor(
                organization=organization, category=category, factor=options["factor"]
            )
        except errors.Invalid as error:
            raise CommandError(error.detail) from None
        row = category or "All rows"
        self.stdout.write(f"{row} of {organization.name}: limits times {options['factor']:g}.")


def _category(given: str) -> str:
    """The category that is meant, however it is capitalised."""
    known = {name.lower(): name for name in CATEGORIES}
    if given and given.lower() not in known:
        raise CommandError(f"There is no row {given!r}; there are: {', '.join(CATEGORIES)}.")
    return known.get(given.lower(), "")
