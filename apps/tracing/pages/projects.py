"""The list of projects, and one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.tracing.models import Project
from apps.tracing.services import feedback_stats
from apps.tracing.store import ProjectStats, runs

PROJECTS_A_PAGE = 50


@dataclass(frozen=True)
class ProjectRow:
    project: Project
    stats: ProjectStats
    feedback: Mapping[str, Any] = field(default_factory=dict)


def listed(
    workspace_id: UUID, *, text: str = "", after: str = ""
) -> tuple[list[ProjectRow], str | None]:
    """A page of projects, newest first, and the cursor of the next page."""
    rows = Project.objects.for_workspace(workspace_id).plain().newest_first()
    if text:
        rows = rows.filter(name__icontains=text)
    if after:
        start, last = _cursor(after)
        rows = rows.filter(Q(start_time__lt=start) | Q(start_time=start, pk__lt=last))
    found = list(rows[: PROJECTS_A_PAGE + 1])
    page = found[:PROJECTS_A_PAGE]
    ids = [row.pk for row in page]
    stats = runs.project_stats(workspace_id, ids)
    feedback = feedback_stats.of_projects(workspace_id, ids)
    cursor = None
    if len(found) > PROJECTS_A_PAGE:
        cursor = f"{page[-1].start_time.isoformat()}~{page[-1].pk}"
    return [ProjectRow(row, stats[row.pk], feedback.get(row.pk, {})) for row in page], cursor


def _cursor(text: str) -> tuple[datetime, UUID]:
    start, _, last = text.partition("~")
    try:
        return datetime.fromisoformat(start).astimezone(UTC), UUID(last)
    except ValueError:
        raise errors.BadRequest("This page address is broken; begin again at the list.") from None


def project(workspace_id: UUID, project_id: UUID) -> Project:
    """One project; 404 when it is not here."""
    return get_or_404(Project.objects.for_workspace(workspace_id), pk=project_id)
