"""Database router: billing records are in the US database only.

In the US that is the default database. Other regions use the alias `billing`, with a role that has
access to billing's tables only. Their own databases lack these tables, so that a misrouted query
fails.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Model

from apps.core.regions import REGIONS

APP = "billing"
ALIAS = "billing"


def billing_database() -> str:
    """Return the alias of the database with billing's tables."""
    return "default" if REGIONS[settings.REGION].keeps_billing else ALIAS


class BillingRouter:
    """Routes billing's models to the billing database and all others to the default."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        return billing_database() if model._meta.app_label == APP else "default"

    db_for_write = db_for_read

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool:
        """Forbid relations between billing and other apps, which are in another database."""
        return (first._meta.app_label == APP) == (second._meta.app_label == APP)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Create billing's tables in the US only, and none through the alias."""
        if db != "default":
            return False
        return app_label != APP or billing_database() == "default"
