"""No page of runs reads a table from end to end: on a population large enough to be asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from apps.feedback.models import Feedback
from apps.ingest.seeding.population import PopulationGenerator
from apps.trace_store import RunQuery, run_store
from apps.tracing.api.run_queries import run_query
from apps.tracing.api.v1.serializers import RunsQuerySerializer
from apps.tracing.models import RunCount
from apps.tracing.services import ensure_project
from tests.bench.plans import recorded
from tests.bench.queries import questions

RUNS = 12_000
_FEW = 1_000
"""A table of so many rows may be read whole: that is a few pages."""


def count(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_a_seeded_workspace_is_settled_and_asked_by_indexes(workspace):
    # At noon, so that each day has as many runs whenever it is asked.
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    until = noon - timedelta(days=1)
    seed = PopulationGenerator(workspace.pk, RUNS, days=2, seed=3, until=until, largest=2_500)
    made = seed.generate()

    stored = count("SELECT count(*) FROM trace_store_run")
    counted = RunCount.objects.for_workspace(workspace)
    assert made == stored == sum(counted.values_list("runs", flat=True))
    assert count("SELECT count(*) FROM trace_store_run_payload") == stored
    assert count("SELECT count(*) FROM trace_store_run_terms") == stored
    assert count("SELECT count(*) FROM trace_store_pending_run") == 0
    assert Feedback.objects.for_workspace(workspace).count() > 0
    project = ensure_project(workspace.pk, "seed")
    largest = run_store.query(
        workspace.pk, RunQuery(project_ids=[project.pk], is_root=True), limit=1
    )
    asked = questions(str(project.pk), str(largest.runs[0].row.id))
    for name, question in asked.items():
        # Of so few traces a third has that tool: to read all of their runs is right.
        if question.path != "/runs/query" or name == "tree":
            continue
        body = RunsQuerySerializer(data=question.ask(1))
        body.is_valid(raise_exception=True)
        query = run_query(workspace.pk, body.validated_data)
        with recorded() as seen:
            run_store.query(workspace.pk, query, limit=50)
        large = {table: rows for table, rows in seen.scanned().items() if rows > _FEW}
        assert large == {}, name
