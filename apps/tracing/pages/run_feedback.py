"""Feedback of runs as pages show it: rows with the names of their authors, and short values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.feedback.models import Feedback
from apps.feedback.services import score_stats
from apps.organizations.models import User
from apps.tracing.models import Project

MAX_FEEDBACK = 200
MAX_CHIPS = 3
"""The number of keys that a row of the tree shows."""


@dataclass(frozen=True)
class RunFeedback:
    row: Feedback
    author: str = ""
    """The user who gave the feedback; empty without a user and on shared traces."""

    @property
    def source(self) -> str:
        """Return the author, and the source type unless it is the application."""
        if not self.author:
            return self.row.source_type
        is_app = self.row.source_type == "app"
        return self.author if is_app else f"{self.author}, {self.row.source_type}"


def load_feedback(project: Project, run_id: UUID) -> list[RunFeedback]:
    """Return the run's feedback, newest first."""
    rows = Feedback.objects.for_workspace(project.workspace_id).filter(run_id=run_id)
    feedback = list(rows.order_by("-created_at", "-id")[:MAX_FEEDBACK])
    return with_authors(feedback)


def with_authors(feedback: Sequence[Feedback]) -> list[RunFeedback]:
    user_ids = {row.user_id for row in feedback if row.user_id}
    users = User.objects.filter(pk__in=user_ids) if user_ids else ()
    names = {user.pk: user.display_name for user in users}
    return [RunFeedback(row, names.get(row.user_id, "") if row.user_id else "") for row in feedback]


def list_chips(project: Project, run_id: UUID) -> list[tuple[str, str]]:
    """Return the scores that the run's row in the tree shows."""
    stats = score_stats.by_run(project.workspace_id, [run_id]).get(run_id, {})
    return [(key[:200], text[:200]) for key, text in feedback_chips(stats)[:MAX_CHIPS]]


def feedback_chips(feedback: score_stats.FeedbackStats) -> list[tuple[str, str]]:
    """Return key and short value of each feedback key: the mean, else the most frequent value."""
    return [(key, _short_score(stats)) for key, stats in sorted(feedback.items())]


def _short_score(stats: Mapping[str, Any]) -> str:
    if stats.get("n") and stats.get("avg") is not None:
        return f"{stats['avg']:.2f}".rstrip("0").rstrip(".")
    values = stats.get("values") or {}
    return str(max(values, key=values.__getitem__)) if values else ""
