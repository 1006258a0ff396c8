"""Shows when a rule would have fired: the same measurements and states as its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from apps.alerts.incidents import AlertState, find_changes
from apps.alerts.metrics import STEP, Measurement, find_project_ids, measure
from apps.alerts.models import AlertLevel, AlertRule
from apps.alerts.services.evaluation import last_window_end
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import MetricsQuery

PERIODS = (timedelta(days=28), timedelta(days=7), timedelta(days=1), timedelta(hours=6))
COARSE_STEP = timedelta(minutes=15)
"""The shortest interval of rollups, from which windows of many runs are measured."""
MAX_COUNTED_RUNS = 100_000
"""Runs that a preview counts one by one, in steps of `STEP`."""


@dataclass(slots=True)
class PreviewIncident:
    """An incident that would have happened."""

    opened_at: datetime
    level: AlertLevel
    value: float | None
    threshold: float | None
    closed_at: datetime | None = None


@dataclass(slots=True)
class AlertPreview:
    """The measurements of a period and the incidents that they would have caused."""

    since: datetime
    until: datetime
    step: timedelta
    """The distance of the measurements; evaluation has `STEP`."""
    measurements: Sequence[Measurement]
    incidents: list[PreviewIncident] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return self.step == STEP


def preview(rule: AlertRule, *, period: timedelta | None = None) -> AlertPreview:
    """Compute the preview of a rule, which may be unsaved, over four weeks or less.

    Projects with many runs are measured in coarser steps, from rollups, or if the windows do not
    fit them, over a shorter period. Raises `AppError` if the rule cannot be measured.
    """
    until = last_window_end()
    project_ids = find_project_ids(rule)
    fits_rollups = not (rule.window % COARSE_STEP or rule.baseline_window % COARSE_STEP)
    length, step = PERIODS[-1], STEP
    for length in (period,) if period is not None else PERIODS:
        if _count_runs(rule, project_ids, until - length) <= MAX_COUNTED_RUNS:
            break
        if fits_rollups:
            step = COARSE_STEP
            until -= timedelta(seconds=until.timestamp() % COARSE_STEP.total_seconds())
            break
    count = length // step
    ends = [until - step * offset for offset in range(count - 1, -1, -1)]
    measurements = measure(rule, project_ids, ends)
    result = AlertPreview(until - length, until, step, measurements)
    result.incidents = _find_incidents(rule, measurements)
    return result


def _count_runs(rule: AlertRule, project_ids: Sequence[UUID], since: datetime) -> int:
    query = RunQuery(
        project_ids=list(project_ids),
        started_from=since - rule.window - rule.baseline_window,
    )
    metrics_query = MetricsQuery(query=query, measures=())
    return run_store.aggregate(rule.workspace_id, metrics_query).overall.runs


def _find_incidents(rule: AlertRule, measurements: Sequence[Measurement]) -> list[PreviewIncident]:
    incidents: list[PreviewIncident] = []
    for _, change in find_changes(rule, AlertState(), measurements):
        if change is None:
            continue
        last = incidents[-1] if incidents and incidents[-1].closed_at is None else None
        if change.level == AlertLevel.OK:
            if last is not None:
                last.closed_at = change.at
        elif last is None:
            incidents.append(
                PreviewIncident(change.at, change.level, change.value, change.threshold)
            )
        elif change.level.rank > last.level.rank:
            last.level, last.value, last.threshold = change.level, change.value, change.threshold
    return incidents
