"""The other tenant has a marked row in every table, so that the isolation tests see any leak."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.other_tenant import OtherTenant

SENTINEL = "sentinel"
ALL_TABLES = """
    SELECT c.relname, array_agg(a.attname::text)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relnamespace = 'public'::regnamespace
    GROUP BY c.relname ORDER BY c.relname
"""
# Tables without tenant: Django's own, and users, who are visible across organizations.
TENANTLESS_TABLES = {
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
# Tables that workers or migrations fill from the runs later.
DERIVED_TABLES = {"trace_store_rollup", "trace_store_pending_run", "trace_store_term_backlog"}
_THREAD = "thread_id IN (SELECT id FROM agent_server_thread WHERE workspace_id = %s)"
_KEY = (
    "key_id IN (SELECT k.id FROM api_keys_apikey k JOIN organizations_workspace w"
    " ON w.organization_id = k.organization_id WHERE w.id = %s)"
)
# Tables whose rows belong to a tenant through another table.
INDIRECT_CONDITIONS = {
    "agent_server_checkpoint": _THREAD,
    "agent_server_checkpointblob": _THREAD,
    "agent_server_checkpointwrite": _THREAD,
    "api_keys_authorizationcode": _KEY,
    "api_keys_clientsession": _KEY,
    "api_keys_devicelogin": _KEY,
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
# Tables without text of users: ids, times, counts, roles and encrypted values.
TABLES_WITHOUT_TEXT = {
    "annotation_itemreview", "annotation_queueitem", "annotation_queuereviewer",
    "evaluators_evaluatorspend",
    "datasets_datasetshare", "datasets_datasetversion", "datasets_indexedexample",
    "agent_server_webhooksecret", "alerts_alertaction", "alerts_alertincident",
    "api_keys_apikey_workspaces",
    "prompts_like", "experiment_jobs_experimentstep",
    "organizations_invitationworkspace", "organizations_membership", "organizations_tagging",
    "organizations_workspacemembership", "trace_store_runcount", "trace_store_retainedtrace",
    "ingest_otlpwaitingspan", "tracing_retention", "trace_store_rollup",
    "trace_store_rollup_interval",
    "trace_store_run_key", "trace_store_run_terms", "trace_store_pending_run",
    "usage_storedbytes", "usage_usagecounter", "usage_usageday", "usage_usagelimit",
}  # fmt: skip


@pytest.mark.django_db
def test_the_other_tenant_has_a_marked_row_in_every_table():
    workspace = OtherTenant.make().workspace
    missing = []

    with connection.cursor() as cursor:
        cursor.execute(ALL_TABLES)
        for table, columns in cursor.fetchall():
            if table in TENANTLESS_TABLES | DERIVED_TABLES:
                continue
            if table in INDIRECT_CONDITIONS:
                condition, value = INDIRECT_CONDITIONS[table], workspace.pk
            elif "workspace_id" in columns:
                condition, value = "workspace_id = %s", workspace.pk
            elif "organization_id" in columns:
                condition, value = "organization_id = %s", workspace.organization_id
            else:
                missing.append(f"{table}: its tenant is unknown")
                continue
            text_condition = (
                "" if table in TABLES_WITHOUT_TEXT else " AND (t::text ILIKE %s OR t::text LIKE %s)"
            )
            parameters = (
                []
                if table in TABLES_WITHOUT_TEXT
                else [f"%{SENTINEL}%", f"%{SENTINEL.encode().hex()}%"]
            )
            sql = f'SELECT EXISTS (SELECT 1 FROM "{table}" t WHERE {condition}{text_condition})'
            cursor.execute(sql, [value, *parameters])
            if cursor.fetchone() != (True,):
                missing.append(table)

    assert not missing, "\n".join(missing)
