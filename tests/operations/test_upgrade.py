"""An installation of an earlier version is migrated: same schema as a new one, and no row is lost.

`data/installation-4ca25da.sql.zst` is the database of an installation of commit 4ca25da after its
services and factories wrote rows to it: `pg_dump --inserts --no-owner --no-privileges
--no-comments` without comments and `psql` commands. It has few partitions to keep it small.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
import zstandard
from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django_celery_beat.models import PeriodicTask
from psycopg import sql
from pytest_django import DjangoDbBlocker

from apps.agent_server.models import AgentRun, Thread, WebhookDelivery
from apps.api_keys.services import caller_for_key
from apps.core.instance import find_postgres_program
from apps.core.verbatim_json import searchable
from apps.feedback.models import Feedback
from apps.ingest.models import DeferredOperation
from apps.operators.management.commands import bootstrap_instance
from apps.organizations.models import User, Workspace
from apps.trace_store import Payload, RunQuery, run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.models import ModelPrice, RunCount
from apps.tracing.models import Project
from tests.factories.tracing import ingest, read_run, wire_run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db,
    pytest.mark.timeout(600),  # the first test migrates
    pytest.mark.xdist_group("upgrade"),
]

DUMP = Path(__file__).parent / "data" / "installation-4ca25da.sql.zst"
# The key of the workspace `sentinel`, which only this dump knows.
API_KEY = "slip_ylqMHAQl-GEZxY287Rt-p6EdQiYbOPWjWIB1Px7ZKuA"
ROOT, CALL, FAILED, OLD, TWICE, DEFERRED, PENDING, THREAD = (
    UUID(f"01920000-0000-7000-8000-{number:012}") for number in range(1, 9)
)
RENAMED_TABLES = {
    "tracing_modelprice": "trace_store_modelprice",
    "tracing_otlporphan": "ingest_otlpwaitingspan",
    "tracing_otlptrace": "ingest_otlptrace",
    "tracing_pendingfiledeletion": "trace_store_pendingfiledeletion",
    "tracing_retainedtrace": "trace_store_retainedtrace",
    "tracing_runcount": "trace_store_runcount",
}
# `migrate` adds to these, and the schedule loses the entries of renamed tasks.
CHANGED_TABLES = {
    "auth_permission",
    "django_celery_beat_periodictask",
    "django_content_type",
    "django_migrations",
}
TABLES = """
SELECT relname FROM pg_class
WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
"""
# A partitioned index is valid once each partition has its part.
INCOMPLETE_INDEXES = """
SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT i.indisvalid
"""


@dataclass(frozen=True)
class Upgrade:
    """The migrated database, which is Django's database during the tests of this module."""

    name: str
    new_installation: str
    """A database that was migrated when it was empty."""
    rows_before: dict[str, int]
    rows_after: dict[str, int]

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(name="sentinel")

    @property
    def project(self) -> Project:
        return Project.objects.for_workspace(self.workspace).get(name="upgrade")


@pytest.fixture(scope="module")
def upgrade(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Upgrade]:
    """Restore the dump and migrate it as the first step of `make up` does."""
    new_installation = str(connection.settings_dict["NAME"])
    name = f"{new_installation}_upgrade"
    with django_db_blocker.unblock():
        _execute_on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        _execute_on_server("CREATE DATABASE {}", name)
        _use_database(name)
        try:
            _restore_dump()
            rows_before = _count_rows()
            bootstrap_instance._migrate()
            yield Upgrade(name, new_installation, rows_before, _count_rows())
        finally:
            _use_database(new_installation)
            _execute_on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _use_database(name: str) -> None:
    connection.close()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
    ContentType.objects.clear_cache()


def _connection_parameters(name: str) -> dict[str, str]:
    parameters = connection.get_connection_params()
    return {
        "dbname": name,
        **{
            key: str(parameters[key])
            for key in ("host", "port", "user", "password")
            if parameters.get(key)
        },
    }


def _execute_on_server(statement: str, name: str) -> None:
    with psycopg.connect(**_connection_parameters("postgres"), autocommit=True) as session:
        session.execute(sql.SQL(statement).format(sql.Identifier(name)))  # type: ignore[arg-type]


def _restore_dump() -> None:
    # Of its own, because the dump changes the settings of the session.
    name = str(connection.settings_dict["NAME"])
    with psycopg.connect(**_connection_parameters(name)) as session:
        session.execute(zstandard.decompress(DUMP.read_bytes()))


def _count_rows() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        counts = (f"SELECT '{table}', count(*) FROM \"{table}\"" for (table,) in cursor.fetchall())
        cursor.execute(" UNION ALL ".join(counts))
        return dict(cursor.fetchall())


def _dump_schema(name: str) -> list[str]:
    """Return the lines of the schema without partitions, whose names and number differ by day."""
    program = find_postgres_program("pg_dump")
    assert program is not None
    parameters = _connection_parameters(name)
    parameters.pop("dbname")
    command = [
        *(str(program), "--schema-only", "--no-owner", "--no-privileges", "--no-comments"),
        *("--exclude-table=*_past", "--exclude-table=*_d2*", f"--dbname={name}"),
    ]
    environment = {f"PG{key.upper()}": value for key, value in parameters.items()}
    process = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    lines = process.stdout.splitlines()
    return [_normalize(line) for line in lines if line and not line.startswith(("--", "\\"))]


def _normalize(line: str) -> str:
    """Undo how PostgreSQL prints the cast of an array that was read from a dump."""
    line = re.sub(r"\(('\w+'::character varying)\)::text", r"\1", line)
    return re.sub(r"\(\(ARRAY\[([^]]*)\]\)::text\[\]\)", r"(ARRAY[\1])", line)


def test_upgraded_schema_equals_the_schema_of_a_new_installation(upgrade):
    assert _dump_schema(upgrade.name) == _dump_schema(upgrade.new_installation)


def test_indexes_cover_existing_partitions(upgrade):
    with connection.cursor() as cursor:
        cursor.execute(INCOMPLETE_INDEXES)

        assert cursor.fetchall() == []


def test_no_migration_is_left(upgrade):
    executor = MigrationExecutor(connection)

    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


def test_tables_keep_their_rows(upgrade):
    expected = {
        RENAMED_TABLES.get(table, table): count
        for table, count in upgrade.rows_before.items()
        if table not in CHANGED_TABLES
    }

    assert {table: upgrade.rows_after[table] for table in expected} == expected


def test_stored_run_is_readable(upgrade):
    root, *children = run_store.fetch_trace(upgrade.workspace.pk, ROOT)
    detail = read_run(upgrade.workspace, ROOT)

    assert root.name == "answer questions"
    assert sorted(str(child.name) for child in children) == ["call model", "call tool"]
    assert detail.value(Payload.INPUTS) == {"question": "why is the sky blue?"}
    assert detail.value(Payload.OUTPUTS) == {"answer": "Rayleigh scattering"}
    assert read_run(upgrade.workspace, FAILED).row.error_preview == "ValueError: no"
    assert read_run(upgrade.workspace, OLD).row.name == "old run"


def test_each_stored_run_has_a_key(upgrade):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM (SELECT DISTINCT workspace_id, id, project_id FROM"
            " trace_store_run EXCEPT SELECT workspace_id, id, project_id FROM trace_store_run_key)"
            " AS missing"
        )
        assert cursor.fetchone() == (0,)
        # The key of a run that was sent with two start times is that of the later operation.
        cursor.execute(
            "SELECT k.partition_time = max(r.partition_time) FROM trace_store_run_key k"
            " JOIN trace_store_run r USING (workspace_id, id, project_id)"
            " WHERE k.id = %s GROUP BY k.partition_time",
            [TWICE],
        )
        assert cursor.fetchall() == [(True,)]


def test_statistics_include_earlier_runs(upgrade):
    query = RunQuery(project_ids=[upgrade.project.pk], run_type="llm")

    metrics = run_store.aggregate(upgrade.workspace.pk, MetricsQuery(query=query)).overall

    assert (metrics.runs, metrics.model_calls) == (1, 1)


def test_pending_runs_are_processed_and_terms_indexed_again(upgrade):
    run_store.process_pending()

    # The runs of both projects whose terms the earlier version wrote.
    assert run_store.index_term_backlog(seconds=60) >= upgrade.rows_before["trace_store_run_terms"]
    assert run_store.count_pending_entries() == 0
    assert read_run(upgrade.workspace, PENDING).row.name == "pending run"


def test_deferred_update_is_applied_when_its_run_arrives(upgrade):
    deferred = DeferredOperation.objects.for_workspace(upgrade.workspace)
    assert deferred.get(run_id=DEFERRED).is_update is True
    assert deferred.filter(is_update=False).count() == 1

    ingest(upgrade.workspace, wire_run(id=DEFERRED, session_name="upgrade", outputs=None))

    assert read_run(upgrade.workspace, DEFERRED).value(Payload.OUTPUTS) == {"nul": "\0", "a": 1}
    assert not deferred.filter(run_id=DEFERRED).exists()


def test_thread_keeps_its_state(upgrade):
    thread = Thread.objects.for_workspace(upgrade.workspace).get(thread_id=THREAD)

    assert thread.values == {"messages": ["hello"], "b": 1, "a": 10**16, "none": None}
    assert thread.interrupts == {"task": [{"value": "sure?", "id": "1"}]}
    assert thread.state == {"values": {"messages": ["hello"]}, "next": ["ask"], "tasks": []}
    assert thread.status == "interrupted"
    other = Thread.objects.for_workspace(upgrade.workspace).exclude(thread_id=THREAD).get()
    assert (other.interrupts, other.state) == (None, None)


def test_agent_run_keeps_its_request_and_stays_resumable(upgrade):
    runs = AgentRun.objects.for_workspace(upgrade.workspace)

    resumable = runs.get(resumable=True)

    assert resumable.kwargs == {"input": {"x": "A\\u0000 é"}, "resumable": True}
    assert runs.filter(resumable=False).count() == 2
    assert WebhookDelivery.objects.for_workspace(upgrade.workspace).get().payload is None


def test_verbatim_columns_are_searchable(upgrade):
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) FROM agent_server_thread WHERE {searchable('values')} ? 'none'"
        )

        assert cursor.fetchone() == (1,)


def test_feedback_is_readable(upgrade):
    feedback = Feedback.objects.for_workspace(upgrade.workspace).get(run_id=ROOT)

    assert (feedback.key, feedback.score, feedback.comment) == ("correctness", 0.75, "nearly")


def test_models_of_trace_store_keep_rows_and_permissions(upgrade):
    content_type = ContentType.objects.get(app_label="trace_store", model="modelprice")

    assert ModelPrice.objects.for_workspace(upgrade.workspace).get().name == "sentinel"
    assert RunCount.objects.for_workspace(upgrade.workspace).count() > 1
    assert [
        (permission.codename, permission.content_type)
        for permission in Permission.objects.filter(group__name="price editors")
    ] == [("change_modelprice", content_type)]
    assert not ContentType.objects.filter(app_label="tracing", model="modelprice").exists()


def test_schedule_has_no_entry_of_a_renamed_task(upgrade):
    tasks = set(PeriodicTask.objects.values_list("task", flat=True))

    assert tasks - {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} == {
        "celery.backend_cleanup"
    }


def test_key_is_accepted(upgrade):
    assert caller_for_key(secret=API_KEY).workspace_id == upgrade.workspace.pk


def test_user_has_no_time_zone(upgrade):
    assert set(User.objects.values_list("time_zone", flat=True)) == {""}


def test_tables_match_the_models(upgrade):
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
