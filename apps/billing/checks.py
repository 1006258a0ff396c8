"""System checks of the billing database setting."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks

from apps.billing.database import ALIAS
from apps.core.regions import REGIONS


@checks.register
def check_billing_database(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Require a billing alias outside the US, and none in the US."""
    keeps_billing = REGIONS[settings.REGION].keeps_billing
    if keeps_billing and ALIAS in settings.DATABASES:
        return [
            checks.Error(
                "BILLING_DATABASE_URL must be unset in the US, where billing is in DATABASE_URL.",
                id="billing.E001",
            )
        ]
    if not keeps_billing and ALIAS not in settings.DATABASES:
        return [
            checks.Warning(
                "Organizations get no billing account, because BILLING_DATABASE_URL is unset.",
                hint="Run `manage.py billing_access` in the US to get the URL.",
                id="billing.W001",
            )
        ]
    return []
