"""What keeps the store in shape, called by beat."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from apps.ingest import intake
from apps.trace_store.store import rollups, runs
from apps.tracing.models import Feedback, HeldOperation, IngestCount, Project
from apps.tracing.services import deletion

_SETTLES_AFTER = timedelta(seconds=5)
_ORPHAN_AFTER = timedelta(minutes=15)
_FORGOTTEN_AFTER = timedelta(days=7)
_SOME = 1000


def settle_held() -> None:
    """Try held operations again.

    Two requests that commit at the same moment may miss each other: the run's does not see the
    held operation yet, nor that one the run. A child whose parent does not come becomes a root;
    an update whose run does not come in a week is dropped.
    """
    now = timezone.now()
    held = HeldOperation.objects.across_workspaces(reason="settles what waits, each in its own")
    held.filter(created_at__lt=now - _FORGOTTEN_AFTER).delete()
    waiting = held.filter(created_at__lt=now - _SETTLES_AFTER).order_by("created_at")[:_SOME]
    by_workspace: dict[UUID, set[UUID]] = {}
    for workspace_id, waits_for in waiting.values_list("workspace_id", "waits_for"):
        by_workspace.setdefault(workspace_id, set()).add(waits_for)
    for workspace_id, waited_for in by_workspace.items():
        if there := runs.existing(workspace_id, waited_for):
            intake.release(workspace_id, there)
    orphans = held.filter(created_at__lt=now - _ORPHAN_AFTER)[:_SOME]
    for orphan in orphans:
        intake.adopt(orphan)


@transaction.atomic
def compact_counts() -> None:
    """Make one row of the counts of each project and past hour; the sums stay the same."""
    table = IngestCount._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.counts', 0))")
        cursor.execute(
            f"""
            WITH ripe AS (
                SELECT workspace_id, project_id, hour FROM {table}
                WHERE hour < date_trunc('hour', now() - interval '10 minutes')
                GROUP BY 1, 2, 3 HAVING count(*) > 1 LIMIT {_SOME}
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
    """Remove what belonged to deleted projects, then their rows. Safe to stop anywhere."""
    deleted = Project.objects.across_workspaces(reason="removes what its owners have deleted")
    for project in deleted.exclude(deleted_at=None).order_by("deleted_at"):
        deletion.remove_runs_of(project)
        Feedback.objects.for_workspace(project.workspace_id).filter(project=project).delete()
        IngestCount.objects.for_workspace(project.workspace_id).filter(
            project_id=project.pk
        ).delete()
        rollups.forget_project(project.workspace_id, project.pk)
        project.delete()
