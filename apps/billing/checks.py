"""System checks: a region without payments' database is told so at the start."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks

from apps.billing.router import ALIAS
from apps.core.regions import REGIONS


@checks.register
def billing_has_its_database(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Outside the US there is an alias for billing; in the US there must be none."""
    is_here = REGIONS[settings.REGION].keeps_billing
    if is_here and ALIAS in settings.DATABASES:
        return [
            checks.Error(
                "BILLING_DATABASE_URL is for other regions: here billing is in DATABASE_URL.",
                id="billing.E001",
            )
        ]
    if not is_here and ALIAS not in settings.DATABASES:
        return [
            checks.Warning(
                "Without BILLING_DATABASE_URL organizations get no billing account.",
                hint="Run `manage.py billing_access` in the US for the address to set.",
                id="billing.W001",
            )
        ]
    return []
