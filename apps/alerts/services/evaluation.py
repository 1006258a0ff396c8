"""Evaluates due rules. The state is in rows, so a missed task only makes evaluations late.

Each rule has the end of its newest evaluated window. An evaluation measures all windows since then
in one query and applies them in order, as if each had been evaluated in time. The result is written
only if the rule was neither changed nor evaluated meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.alerts.incidents import AlertState, LevelChange, find_changes
from apps.alerts.metrics import STEP, Measurement, find_project_ids, measure
from apps.alerts.models import AlertAction, AlertIncident, AlertLevel, AlertRule
from apps.alerts.querysets import AlertIncidentQuerySet, AlertRuleQuerySet
from apps.alerts.services import notices
from apps.core.errors import AppError

log = logging.getLogger(__name__)

INGEST_DELAY = timedelta(seconds=30)
"""How long after the end of a window it is evaluated, so that its last runs have arrived."""
LEASE = timedelta(minutes=2)
RETRY_DELAY = timedelta(minutes=1)
SLOW_SECONDS = 0.5
PAUSE_FACTOR = 3
MAX_MISSED = 288
"""Missed windows that are evaluated later: those of the last day."""


def _all_rules() -> AlertRuleQuerySet:
    return AlertRule.objects.across_workspaces(reason="the task evaluates all rules")


def last_window_end(now: datetime | None = None) -> datetime:
    """Return the end of the newest window that can be evaluated."""
    seconds = int(STEP.total_seconds())
    timestamp = int(((now or timezone.now()) - INGEST_DELAY).timestamp())
    return datetime.fromtimestamp(timestamp // seconds * seconds, UTC)


def evaluate_due(seconds: float) -> int:
    """Evaluate due rules for at most about `seconds`; return their number. Safe to repeat."""
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline and (rule := _turns.claim()) is not None:
        count += 1
        started_at = time.monotonic()
        try:
            evaluate(rule)
        except AppError as error:
            _record_failure(rule, error.detail)
        except Exception:
            log.exception("The alert rule %s cannot be evaluated.", rule.pk)
            _record_failure(rule, "Internal error.")
        finally:
            _turns.end(rule, time.monotonic() - started_at)
    return count


def count_due_organizations(limit: int) -> int:
    """Return the number of organizations with a due rule, at most `limit`."""
    rows = _all_rules().due().with_present_scope()
    return rows.values("workspace__organization_id").distinct()[:limit].count()


class _Turns:
    """Lets organizations take turns in the threads of this process.

    One thread at most evaluates rules of an organization. After a slow evaluation its organization
    waits for a multiple of the time that it took, unless no other one has a due rule.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: set[UUID] = set()
        self._pauses: dict[UUID, float] = {}
        """The ends of the pauses."""

    def claim(self) -> AlertRule | None:
        """Lease the next rule, whose evaluation has to be ended by `end`."""
        with self._lock:
            now = time.monotonic()
            self._pauses = {key: end for key, end in self._pauses.items() if end > now}
            rule = _claim({*self._active, *self._pauses})
            if rule is None and self._pauses:
                rule = _claim(self._active)
            if rule is not None:
                self._active.add(rule.workspace.organization_id)
            return rule

    def end(self, rule: AlertRule, seconds: float) -> None:
        organization_id = rule.workspace.organization_id
        with self._lock:
            self._active.discard(organization_id)
            if seconds > SLOW_SECONDS:
                self._pauses[organization_id] = time.monotonic() + PAUSE_FACTOR * seconds


_turns = _Turns()


@transaction.atomic
def _claim(waiting: Collection[UUID] = ()) -> AlertRule | None:
    """Lease the rule that is due longest, not of the waiting organizations.

    A worker that dies loses it after the lease.
    """
    rows = _all_rules().due().with_present_scope().order_by("due_at")
    if waiting:
        rows = rows.exclude(workspace__organization_id__in=waiting)
    rows = rows.select_for_update(skip_locked=True, no_key=True, of=("self",))
    rule = rows.select_related("workspace", "project", "deployment").first()
    if rule is not None:
        rule.due_at = timezone.now() + LEASE
        rule.save(update_fields=["due_at"])
    return rule


def _record_failure(rule: AlertRule, reason: str) -> None:
    """Retry later. The windows stay unevaluated and are made up for."""
    _all_rules().filter(pk=rule.pk).update(
        last_error=reason[:500], due_at=timezone.now() + RETRY_DELAY
    )


def evaluate(rule: AlertRule, now: datetime | None = None) -> None:
    """Evaluate the windows of the rule that ended since its last evaluation.

    Raises `AppError` if they cannot be measured.
    """
    ends = missed_window_ends(rule, last_window_end(now))
    measurements = measure(rule, find_project_ids(rule), ends)
    _apply(rule, measurements)


def missed_window_ends(rule: AlertRule, last: datetime) -> list[datetime]:
    """Return the ends of the windows after the newest evaluated one, the newest `MAX_MISSED`."""
    count = min(max(0, (last - rule.evaluated_until) // STEP), MAX_MISSED)
    return [last - STEP * offset for offset in range(count - 1, -1, -1)]


@transaction.atomic
def _apply(rule: AlertRule, measurements: Sequence[Measurement]) -> None:
    rows = _all_rules().select_for_update(no_key=True, of=("self",))
    row = rows.select_related("project", "deployment").filter(pk=rule.pk).first()
    if row is None or not row.is_enabled:
        return
    is_unchanged = (row.evaluated_until, row.updated_at) == (rule.evaluated_until, rule.updated_at)
    if is_unchanged and measurements:
        _advance(row, measurements)
    row.due_at = (row.evaluated_until if is_unchanged else timezone.now()) + (
        STEP + INGEST_DELAY if is_unchanged else timedelta(0)
    )
    row.last_error = ""
    row.save(
        update_fields=[
            *("level", "ok_count", "evaluated_until", "last_value", "last_error", "due_at"),
        ]
    )


def _advance(rule: AlertRule, measurements: Sequence[Measurement]) -> None:
    incident = _incidents(rule).unclosed().first()
    first = AlertState(AlertLevel(rule.level), rule.ok_count)
    for state, change in find_changes(rule, first, measurements):
        rule.level, rule.ok_count = state.level, state.ok_count
        if change is not None:
            incident = _change_incident(rule, incident, change)
    newest = measurements[-1]
    rule.evaluated_until, rule.last_value = newest.at, newest.value
    if incident is not None:
        _announce(rule, incident, at=newest.at)


def _incidents(rule: AlertRule) -> AlertIncidentQuerySet:
    return AlertIncident.objects.for_workspace(rule.workspace_id).filter(rule=rule)


def _change_incident(
    rule: AlertRule, incident: AlertIncident | None, change: LevelChange
) -> AlertIncident | None:
    """Open, worsen or close the incident; return it unless it is closed."""
    if change.level == AlertLevel.OK:
        if incident is not None:
            close_incident(rule, incident, at=change.at, value=change.value)
        return None
    if incident is None:
        incident = AlertIncident(workspace_id=rule.workspace_id, rule=rule, opened_at=change.at)
    elif change.level.rank <= AlertLevel(incident.level).rank:
        return incident
    incident.level, incident.value = change.level, change.value
    incident.threshold = change.threshold
    incident.save()
    _announce(rule, incident, at=change.at)
    return incident


def _announce(rule: AlertRule, incident: AlertIncident, *, at: datetime) -> None:
    """Notify the actions once of each level, unless the rule is silenced."""
    level, announced = AlertLevel(incident.level), AlertLevel(incident.announced_level)
    if rule.is_silenced or level.rank <= announced.rank:
        return
    notices.announce(
        rule,
        incident,
        status=notices.FIRED,
        at=at,
        value=incident.value,
        threshold=incident.threshold,
    )
    incident.announced_level = level
    incident.save(update_fields=["announced_level"])


def close_incident(
    rule: AlertRule, incident: AlertIncident, *, at: datetime, value: float | None
) -> None:
    """Close the incident, in a transaction, and notify the actions if they know of it."""
    incident.closed_at = at
    incident.save(update_fields=["closed_at"])
    if incident.announced_level != AlertLevel.OK:
        announce_recovery(rule, incident, at=at, value=value)


def announce_recovery(
    rule: AlertRule,
    incident: AlertIncident,
    *,
    at: datetime,
    value: float | None,
    action: AlertAction | None = None,
) -> None:
    """Notify the actions of the rule, or one of them, that the incident is over."""
    notices.announce(
        rule,
        incident,
        status=notices.RECOVERED,
        at=at,
        value=value,
        threshold=incident.threshold,
        action=action,
    )
