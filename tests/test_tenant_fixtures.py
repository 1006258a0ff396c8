"""The sentinel stands in every table that a tenant has rows in, so that a leak of any is seen."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.other_tenant import Foreign

WORD = "sentinel"
ALL_TABLES = """
    SELECT c.relname, array_agg(a.attname::text)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relnamespace = 'public'::regnamespace
    GROUP BY c.relname ORDER BY c.relname
"""
# Of nobody, or of people and not of a place: whoever may see a person sees their name.
NOBODYS = {
    "account_emailaddress", "account_emailconfirmation", "auth_group", "auth_group_permissions",
    "auth_permission", "django_admin_log", "django_content_type", "django_migrations",
    "django_session", "mfa_authenticator", "organizations_user", "organizations_user_groups",
    "organizations_user_user_permissions", "socialaccount_socialaccount", "socialaccount_socialapp",
    "socialaccount_socialtoken", "waffle_flag", "waffle_flag_groups", "waffle_flag_users",
    "waffle_sample", "waffle_switch",
    "usersessions_usersession",
    "django_celery_beat_clockedschedule", "django_celery_beat_crontabschedule",
    "django_celery_beat_intervalschedule", "django_celery_beat_periodictask",
    "django_celery_beat_periodictasks", "django_celery_beat_solarschedule",
}  # fmt: skip
# What workers make of the runs that are planted, when they come to it.
MADE_LATER = {"trace_store_rollup", "trace_store_pending_run"}
_THREAD = "thread_id IN (SELECT id FROM agent_server_thread WHERE workspace_id = %s)"
# Whose rows say by another row whose they are.
THROUGH = {
    "agent_server_checkpoint": _THREAD,
    "agent_server_checkpointblob": _THREAD,
    "agent_server_checkpointwrite": _THREAD,
    "agent_server_storevector": (
        "item_id IN (SELECT id FROM agent_server_storeitem WHERE workspace_id = %s)"
    ),
    "agent_server_streamedevents": (
        "run_id IN (SELECT id FROM agent_server_agentrun WHERE workspace_id = %s)"
    ),
    "organizations_organization": (
        "id = (SELECT organization_id FROM organizations_workspace WHERE id = %s)"
    ),
    "billing_payment": (
        "account_id = (SELECT a.id FROM billing_billingaccount a JOIN organizations_workspace w"
        " ON w.organization_id = a.organization_id WHERE w.id = %s)"
    ),
}
# Rows without words of anybody: ids, times, counts, roles, and what is encrypted.
WORDLESS = {
    "agent_server_webhooksecret", "api_keys_apikey_workspaces",
    "organizations_invitationworkspace", "organizations_membership", "organizations_tagging",
    "organizations_workspacemembership", "tracing_runcount", "tracing_retainedtrace",
    "tracing_otlporphan", "tracing_retention", "trace_store_rollup", "trace_store_rollup_interval",
    "trace_store_run_terms", "trace_store_pending_run", "usage_usagecounter", "usage_usageday",
    "usage_usagelimit",
}  # fmt: skip


@pytest.mark.django_db
def test_every_table_of_a_tenant_has_a_row_with_the_word():
    workspace = Foreign.make().workspace
    missing = []

    with connection.cursor() as cursor:
        cursor.execute(ALL_TABLES)
        for table, columns in cursor.fetchall():
            if table in NOBODYS | MADE_LATER:
                continue
            if table in THROUGH:
                condition, value = THROUGH[table], workspace.pk
            elif "workspace_id" in columns:
                condition, value = "workspace_id = %s", workspace.pk
            elif "organization_id" in columns:
                condition, value = "organization_id = %s", workspace.organization_id
            else:
                missing.append(f"{table}: whose is it?")
                continue
            says = "" if table in WORDLESS else " AND (t::text ILIKE %s OR t::text LIKE %s)"
            words = [] if table in WORDLESS else [f"%{WORD}%", f"%{WORD.encode().hex()}%"]
            sql = f'SELECT EXISTS (SELECT 1 FROM "{table}" t WHERE {condition}{says})'
            cursor.execute(sql, [value, *words])
            if cursor.fetchone() != (True,):
                missing.append(table)

    assert not missing, "\n".join(missing)
