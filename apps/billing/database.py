"""Router and access role of the database with billing records, which are in the US only.

In the US that is the default database. Other regions use the alias `billing`, with a role that has
access to billing's tables only. Their own databases lack these tables, so that a misrouted query
fails.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connection
from django.db.models import Model
from psycopg import sql

from apps.billing.models import BillingAccount, Payment
from apps.core.instance import BILLING_ROLE
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


# The organization's region creates and changes accounts; payments are recorded in the US.
_PRIVILEGES = {BillingAccount: "SELECT, INSERT, UPDATE", Payment: "SELECT"}


def role_exists(role: str = BILLING_ROLE) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        return cursor.fetchone() is not None


def grant_privileges(role: str = BILLING_ROLE) -> None:
    """Grant the role its privileges in this database. Safe to repeat."""
    name = sql.Identifier(role)
    statements = [
        sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}").format(role=name),
        sql.SQL("REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}").format(role=name),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM {role}").format(role=name),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {role}").format(role=name),
        *(
            sql.SQL("GRANT {privileges} ON {table} TO {role}").format(
                privileges=sql.SQL(privileges),
                table=sql.Identifier(model._meta.db_table),
                role=name,
            )
            for model, privileges in _PRIVILEGES.items()
        ),
    ]
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.as_string(None))


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
