"""The PostgreSQL role of other regions, which has access to billing's tables only."""

from __future__ import annotations

from django.db import connection
from psycopg import sql

from apps.billing.models import BillingAccount, Payment
from apps.core.instance_paths import BILLING_ROLE

# The organization's region creates and changes accounts; payments are recorded in the US.
_RIGHTS = {BillingAccount: "SELECT, INSERT, UPDATE", Payment: "SELECT"}


def role_exists(role: str = BILLING_ROLE) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        return cursor.fetchone() is not None


def grant(role: str = BILLING_ROLE) -> None:
    """Grant the role its privileges in this database. Safe to repeat."""
    name = sql.Identifier(role)
    statements = [
        sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}").format(role=name),
        sql.SQL("REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}").format(role=name),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM {role}").format(role=name),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {role}").format(role=name),
        *(
            sql.SQL("GRANT {rights} ON {table} TO {role}").format(
                rights=sql.SQL(rights), table=sql.Identifier(model._meta.db_table), role=name
            )
            for model, rights in _RIGHTS.items()
        ),
    ]
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.as_string(None))
