"""`manage.py set_limits`: multiply the rate limits of one organization."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core import errors
from apps.organizations.models import Organization
from apps.rate_limits import factors
from apps.rate_limits.table import CATEGORIES


class Command(BaseCommand):
    help = "Multiply the rate limits of an organization, effective within a second."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument(
            "--row",
            default="",
            metavar="CATEGORY",
            help=f"one of: {', '.join(CATEGORIES)}; default: all rows",
        )
        parser.add_argument(
            "--factor", required=True, type=float, metavar="N", help="1 restores the table"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        organization = Organization.objects.filter(name=options["organization"]).first()
        if organization is None:
            raise CommandError(f"Organization {options['organization']!r} does not exist.")
        category = _category(options["row"])
        try:
            factors.set_factor(
                organization=organization, category=category, factor=options["factor"]
            )
        except errors.Invalid as error:
            raise CommandError(error.detail) from None
        row = category or "All rows"
        self.stdout.write(f"{row} of {organization.name}: limits times {options['factor']:g}.")


def _category(name: str) -> str:
    """Return the category, ignoring case."""
    categories = {category.lower(): category for category in CATEGORIES}
    if name and name.lower() not in categories:
        raise CommandError(f"--row must be one of {', '.join(CATEGORIES)}, not {name!r}.")
    return categories.get(name.lower(), "")
