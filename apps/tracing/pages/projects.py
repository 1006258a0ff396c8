"""The list of projects, and one of them."""

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
from apps.tracing.pages.run_list import chips
from apps.tracing.pages.tagging import on_projects
from apps.tracing.services import statistics

PROJECTS_A_PAGE = 50
DAYS = 7
SELECTED = (
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
    """Of all time, as the ledger has them."""
    stats: Mapping[str, Any]
    """Of the last seven days."""
    tags: Sequence[Tagging] = ()

    @property
    def feedback(self) -> list[tuple[str, str]]:
        return chips(self.stats.get("feedback_stats") or {})


def listed(
    workspace_id: UUID, *, text: str = "", after: str = "", tag: UUID | None = None
) -> tuple[list[ProjectRow], str | None]:
    """A page of projects, newest first, and the cursor of the next page."""
    rows = Project.objects.for_workspace(workspace_id).present().plain().newest_first()
    if text:
        rows = rows.filter(name__icontains=text)
    if tag:
        rows = filter_by_tags(rows, workspace_id, [tag], [ResourceType.PROJECT])
    if after:
        start, last = _cursor(after)
        rows = rows.filter(Q(start_time__lt=start) | Q(start_time=start, pk__lt=last))
    found = list(rows[: PROJECTS_A_PAGE + 1])
    page = found[:PROJECTS_A_PAGE]
    ids = [row.pk for row in page]
    counts = run_store.project_stats(workspace_id, ids)
    since = datetime.now(UTC) - timedelta(days=DAYS)
    stats = statistics.project_stats(workspace_id, ids, since=since, select=SELECTED)
    tags = on_projects(workspace_id, ids)
    cursor = None
    if len(found) > PROJECTS_A_PAGE:
        cursor = f"{page[-1].start_time.isoformat()}~{page[-1].pk}"
    return [
        ProjectRow(row, counts[row.pk], stats.get(row.pk, {}), tags.get(row.pk, ())) for row in page
    ], cursor


def _cursor(text: str) -> tuple[datetime, UUID]:
    start, _, last = text.partition("~")
    try:
        return datetime.fromisoformat(start).astimezone(UTC), UUID(last)
    except (ValueError, OverflowError):
        raise errors.BadRequest("The page address is invalid. Start again from the list.") from None


def project(workspace_id: UUID, project_id: UUID) -> Project:
    """One project; 404 when it is not here."""
    return get_or_404(Project.objects.for_workspace(workspace_id).present(), pk=project_id)


def named(workspace_id: UUID, given: Sequence[str]) -> list[Project]:
    """The workspace's projects that these ids name; nonsense and strangers' are passed over."""
    ids = set()
    for one in given[:PROJECTS_A_PAGE]:
        with suppress(ValueError):
            ids.add(UUID(one))
    rows = Project.objects.for_workspace(workspace_id).present().plain().filter(pk__in=ids)
    return list(rows.order_by("name"))
