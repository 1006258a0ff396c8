"""Billing records lie in the US database and nowhere else.

In the US that is the default database. In any other region it is the alias `billing`, with a role
that may touch billing's tables alone, and the region's own database does not have the tables: a
mistake is an error there, never a row.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Model

from apps.core.regions import REGIONS

APP = "billing"
ALIAS = "billing"


def billing_database() -> str:
    """The alias of the database that has billing's tables."""
    return "default" if REGIONS[settings.REGION].keeps_billing else ALIAS


class BillingRouter:
    """Sends billing's models to their database and everything else away from it."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return billing_database() if model._meta.app_label == APP else "default"

    db_for_write = db_for_read

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool:
        """Billing knows organizations by id; a foreign key would tie two databases together."""
        return (first._meta.app_label == APP) == (second._meta.app_label == APP)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Only the US makes billing's tables, and over the alias nobody makes any."""
        if db != "default":
            return False
        return app_label != APP or billing_database() == "default"
