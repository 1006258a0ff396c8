"""Queries for pages of runs scan no large table on a seeded population."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection

from apps.feedback.models import Feedback
from apps.ingest.seeding.population import PopulationGenerator
from apps.trace_store import RunQuery, run_store
from apps.trace_store.models import RunCount
from apps.trace_store.postgres.rollups import query_plan
from apps.tracing.api.run_queries import run_query
from apps.tracing.api.v1.serializers import RunsQuerySerializer
from apps.tracing.services import ensure_project
from tests.bench.plans import record_statements
from tests.bench.queries import build_queries

pytestmark = pytest.mark.exhaustive

RUNS = 12_000
MAX_SCANNED_ROWS = 1_000
"""A table of this many rows may be read by a sequential scan: it has a few pages."""


def count_rows(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_a_seeded_workspace_is_processed_and_queried_by_indexes(workspace):
    # At noon, so that each day has the same number of runs at any time of day.
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    until = noon - timedelta(days=1)
    seed = PopulationGenerator(workspace.pk, RUNS, days=2, seed=3, until=until, largest=2_500)
    generated = seed.generate()

    stored = count_rows("SELECT count(*) FROM trace_store_run")
    counted = RunCount.objects.for_workspace(workspace)
    assert generated == stored == sum(counted.values_list("runs", flat=True))
    assert count_rows("SELECT count(*) FROM trace_store_run_payload") == stored
    assert count_rows("SELECT count(*) FROM trace_store_run_terms") == stored
    assert count_rows("SELECT count(*) FROM trace_store_pending_run") == 0
    assert Feedback.objects.for_workspace(workspace).count() > 0
    project = ensure_project(workspace.pk, "seed")
    largest = run_store.query(
        workspace.pk, RunQuery(project_ids=[project.pk], is_root=True), limit=1
    )
    bench_queries = build_queries(str(project.pk), str(largest.runs[0].row.id))
    for name, bench_query in bench_queries.items():
        # A third of these few traces has that tool, so a scan of all their runs is right.
        if bench_query.path != "/runs/query" or name == "tree":
            continue
        body = RunsQuerySerializer(data=bench_query.build_body(1))
        body.is_valid(raise_exception=True)
        query = run_query(workspace.pk, body.validated_data)
        with record_statements() as recording:
            run_store.query(workspace.pk, query, limit=50)
        large = {
            table: rows for table, rows in recording.scanned().items() if rows > MAX_SCANNED_ROWS
        }
        assert large == {}, name
    plan = plan_of_misplaced_runs(workspace.pk, project.pk, until)
    assert "project_id_start_time_idx" in plan
    assert "_pkey" not in plan
    assert "Seq Scan" not in plan


def plan_of_misplaced_runs(workspace_id, project_id, until):
    """Return the plan by which rollups look up misplaced runs, under that query's settings."""
    plans = []
    execute = psycopg.Cursor.execute

    def explain_first(cursor, query, params=None, **options):
        if "CROSS JOIN LATERAL" in str(query):
            execute(cursor, f"EXPLAIN {query}", params)
            plans.extend(row[0] for row in cursor.fetchall())
        return execute(cursor, query, params, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", explain_first)
        assert (
            query_plan._misplaced_parts(
                workspace_id, [project_id], until - timedelta(days=2), until
            )
            == []
        )
    return "\n".join(plans)
