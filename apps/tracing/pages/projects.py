"""Data of the project list and lookup of projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from apps.core import errors
from apps.organizations.models import ResourceType, Tagging
from apps.organizations.services.tags import filter_by_tags
from apps.trace_store import ProjectStats, run_store
from apps.trace_store.models import RunCount
from apps.tracing.models import Project
from apps.tracing.pages.run_feedback import feedback_chips
from apps.tracing.pages.tagging import tags_by_project
from apps.tracing.services import statistics

PROJECTS_PER_PAGE = 50
BY_NAME = "name"
STATS_DAYS = 7
SELECTED_STATS = (
    "trace_count",
    "run_count",
    "error_rate",
    "latency_p50",
    "latency_p99",
    "total_tokens",
    "total_cost",
    "feedback_stats",
)


@dataclass(frozen=True)
class ProjectRow:
    project: Project
    counts: ProjectStats
    """Totals over all time, from the run counts; only the last start time is shown."""
    stats: Mapping[str, Any]
    """Statistics of the runs that started in the last `STATS_DAYS` days."""
    tags: Sequence[Tagging] = ()

    @property
    def feedback(self) -> list[tuple[str, str]]:
        return feedback_chips(self.stats.get("feedback_stats") or {})


def load_project_list(
    workspace_id: UUID, *, text: str = "", after: str = "", tag: UUID | None = None, sort: str = ""
) -> tuple[list[ProjectRow], str | None]:
    """Return a page of projects and the cursor of the next page.

    The project with the newest run comes first; with the sort `name` they are in order of names.
    """
    rows = Project.objects.for_workspace(workspace_id).present().without_experiments()
    if text:
        rows = rows.filter(name__icontains=text)
    if tag:
        rows = filter_by_tags(rows, workspace_id, [tag], [ResourceType.PROJECT])
    active = rows.annotate(active_at=_last_activity(workspace_id))
    if after:
        active = active.filter(_after_cursor(after, sort))
    order = ("name", "pk") if sort == BY_NAME else ("-active_at", "-pk")
    results = list(active.order_by(*order)[: PROJECTS_PER_PAGE + 1])
    page = results[:PROJECTS_PER_PAGE]
    ids = [row.pk for row in page]
    counts = run_store.project_stats(workspace_id, ids)
    # A whole hour, so that rollups cover the period.
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    since = now - timedelta(days=STATS_DAYS)
    stats = statistics.project_stats(workspace_id, ids, since=since, select=SELECTED_STATS)
    tags = tags_by_project(workspace_id, ids)
    cursor = None
    if len(results) > PROJECTS_PER_PAGE:
        last: Any = page[-1]  # with the annotation `active_at`
        position = last.name if sort == BY_NAME else last.active_at.isoformat()
        cursor = f"{position}~{last.pk}"
    return [
        ProjectRow(row, counts[row.pk], stats.get(row.pk, {}), tags.get(row.pk, ())) for row in page
    ], cursor


def _last_activity(workspace_id: UUID) -> Coalesce:
    """The start of the project's newest run in its last hour with runs, else its creation."""
    counts = RunCount.objects.for_workspace(workspace_id).filter(
        project_id=OuterRef("pk"), last_start_time__isnull=False
    )
    newest = counts.order_by("-hour", "-last_start_time").values("last_start_time")[:1]
    return Coalesce(Subquery(newest), "start_time")


def _after_cursor(text: str, sort: str) -> Q:
    position, _, last_id = text.rpartition("~")
    try:
        project_id = UUID(last_id)
        if sort == BY_NAME:
            return Q(name__gt=position) | Q(name=position, pk__gt=project_id)
        active_at = datetime.fromisoformat(position).astimezone(UTC)
        return Q(active_at__lt=active_at) | Q(active_at=active_at, pk__lt=project_id)
    except (ValueError, OverflowError):
        raise errors.BadRequest(
            "The parameter `after` is invalid. Open the project list again."
        ) from None


def get_projects(workspace_id: UUID, texts: Sequence[str]) -> list[Project]:
    """Return the workspace's projects with these ids; invalid and unknown ids are ignored."""
    ids = set()
    for text in texts[:PROJECTS_PER_PAGE]:
        with suppress(ValueError):
            ids.add(UUID(text))
    rows = (
        Project.objects.for_workspace(workspace_id)
        .present()
        .without_experiments()
        .filter(pk__in=ids)
    )
    return list(rows.order_by("name"))
