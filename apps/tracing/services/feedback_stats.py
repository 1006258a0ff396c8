"""Feedback in sums, key by key, as `feedback_stats` on the wire has it.

Each function answers with one query, however many runs are on the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

FeedbackStats = dict[str, dict[str, Any]]
"""By key: `n` (numeric scores), `avg`, `stdev`, `min`, `max`, `errors`, `values` (how often each
value that is no number), `comments` (the newest), `sources`, `contains_thread_feedback`,
`show_feedback_arrow`."""


def of_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each run what was said about it; runs without feedback are not in the answer."""
    return {}


def of_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each trace what was said about any of its runs."""
    return {}


def of_threads(
    workspace_id: UUID, project_id: UUID, thread_keys: Collection[str]
) -> Mapping[str, FeedbackStats]:
    """Of each thread what was said about it as a whole or about a run in one of its traces."""
    return {}


def of_projects(workspace_id: UUID, project_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each project what was said about itself, not about its runs (`session_feedback_stats`)."""
    return {}


def of_runs_in_projects(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    *,
    started_from: datetime | None = None,
    started_until: datetime | None = None,
    roots_only: bool = False,
) -> Mapping[UUID, FeedbackStats]:
    """Of each project what was said about its runs that started in that time (`feedback_stats`)."""
    return {}
