"""Data of the project list and lookup of projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.models import ResourceType, Tagging
from apps.organizations.services.tags import filter_by_tags
from apps.trace_store import ProjectStats, run_store
from apps.tracing.models import Project
from apps.tracing.pages.run_list import feedback_chips
from apps.tracing.pages.tagging import tags_by_project
from apps.tracing.services import statistics

PROJECTS_PER_PAGE = 50
STATS_DAYS = 7
SELECTED_STATS = (
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
    """Totals over all time, from the run counts."""
    stats: Mapping[str, Any]
    """Statistics of the last seven days."""
    tags: Sequence[Tagging] = ()

    @property
    def feedback(self) -> list[tuple[str, str]]:
        return feedback_chips(self.stats.get("feedback_stats") or {})


def load_project_list(
    workspace_id: UUID, *, text: str = "", after: str = "", tag: UUID | None = None
) -> tuple[list[ProjectRow], str | None]:
    """Return a page of projects, newest first, and the cursor of the next page."""
    rows = Project.objects.for_workspace(workspace_id).present().plain().newest_first()
    if text:
        rows = rows.filter(name__icontains=text)
    if tag:
        rows = filter_by_tags(rows, workspace_id, [tag], [ResourceType.PROJECT])
    if after:
        start, last = _decode_cursor(after)
        rows = rows.filter(Q(start_time__lt=start) | Q(start_time=start, pk__lt=last))
    results = list(rows[: PROJECTS_PER_PAGE + 1])
    page = results[:PROJECTS_PER_PAGE]
    ids = [row.pk for row in page]
    counts = run_store.project_stats(workspace_id, ids)
    since = datetime.now(UTC) - timedelta(days=STATS_DAYS)
    stats = statistics.project_stats(workspace_id, ids, since=since, select=SELECTED_STATS)
    tags = tags_by_project(workspace_id, ids)
    cursor = None
    if len(results) > PROJECTS_PER_PAGE:
        cursor = f"{page[-1].start_time.isoformat()}~{page[-1].pk}"
    return [
        ProjectRow(row, counts[row.pk], stats.get(row.pk, {}), tags.get(row.pk, ())) for row in page
    ], cursor


def _decode_cursor(text: str) -> tuple[datetime, UUID]:
    start, _, last = text.partition("~")
    try:
        return datetime.fromisoformat(start).astimezone(UTC), UUID(last)
    except (ValueError, OverflowError):
        raise errors.BadRequest("The page address is invalid. Start again from the list.") from None


def get_project(workspace_id: UUID, project_id: UUID) -> Project:
    """Return the workspace's project, or raise 404."""
    return get_or_404(Project.objects.for_workspace(workspace_id).present(), pk=project_id)


def get_projects(workspace_id: UUID, texts: Sequence[str]) -> list[Project]:
    """Return the workspace's projects with these ids; invalid and unknown ids are ignored."""
    ids = set()
    for text in texts[:PROJECTS_PER_PAGE]:
        with suppress(ValueError):
            ids.add(UUID(text))
    rows = Project.objects.for_workspace(workspace_id).present().plain().filter(pk__in=ids)
    return list(rows.order_by("name"))
