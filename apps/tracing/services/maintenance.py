"""Periodic maintenance."""

from __future__ import annotations

from django.db import connection, transaction

from apps.feedback.models import Feedback
from apps.trace_store.postgres.rollups import dirty_intervals
from apps.tracing.models import Project, RunCount
from apps.tracing.services import deletion

_BATCH_SIZE = 1000


@transaction.atomic
def compact_run_counts() -> None:
    """Merge the counts of each project and past hour into one row; sums are unchanged."""
    table = RunCount._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.run_counts', 0))")
        cursor.execute(
            f"""
            WITH ripe AS (
                SELECT workspace_id, project_id, hour FROM {table}
                WHERE hour < date_trunc('hour', now() - interval '10 minutes')
                GROUP BY 1, 2, 3 HAVING count(*) > 1 LIMIT {_BATCH_SIZE}
            ), gone AS (
                DELETE FROM {table} c USING ripe r
                WHERE c.workspace_id = r.workspace_id AND c.project_id = r.project_id
                  AND c.hour = r.hour
                RETURNING c.*
            )
            INSERT INTO {table} (created_at, workspace_id, project_id, hour, runs, traces, merged,
                                 removed_runs, removed_traces, last_start_time)
            SELECT now(), workspace_id, project_id, hour, sum(runs), sum(traces), sum(merged),
                   sum(removed_runs), sum(removed_traces), max(last_start_time)
            FROM gone GROUP BY workspace_id, project_id, hour
            """  # noqa: S608  (the model's own table)
        )


def remove_deleted_projects() -> None:
    """Remove the data of deleted projects, then their rows. Safe to interrupt."""
    deleted = Project.objects.across_workspaces(reason="removes what its owners have deleted")
    for project in deleted.exclude(deleted_at=None).order_by("deleted_at"):
        deletion.remove_project_runs(project)
        Feedback.objects.for_workspace(project.workspace_id).filter(project=project).delete()
        RunCount.objects.for_workspace(project.workspace_id).filter(project_id=project.pk).delete()
        dirty_intervals.delete_project(project.workspace_id, project.pk)
        project.delete()
