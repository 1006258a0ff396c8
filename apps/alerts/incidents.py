"""The state of a rule over successive measurements: when incidents open, worsen and close.

Evaluation and preview share it, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from apps.alerts.metrics import Measurement, find_level
from apps.alerts.models import AlertLevel, AlertRule

RECOVERY_COUNT = 2
"""Consecutive evaluations below the thresholds that end an incident, so that it does not flap."""


@dataclass(frozen=True, slots=True)
class AlertState:
    """The level of a rule, and the consecutive evaluations below it during an incident."""

    level: AlertLevel = AlertLevel.OK
    ok_count: int = 0


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of the level that opens, worsens or closes an incident."""

    at: datetime
    level: AlertLevel
    value: float | None
    threshold: float | None


def advance(state: AlertState, level: AlertLevel) -> AlertState:
    """Return the state after an evaluation with this level."""
    if level != AlertLevel.OK:
        return AlertState(level)
    if state.level == AlertLevel.OK:
        return state
    ok_count = state.ok_count + 1
    return AlertState() if ok_count >= RECOVERY_COUNT else AlertState(state.level, ok_count)


def find_changes(
    rule: AlertRule, state: AlertState, measurements: Iterable[Measurement]
) -> Iterator[tuple[AlertState, LevelChange | None]]:
    """Yield the state after each measurement, with the change of the level if there is one."""
    for measurement in measurements:
        level, threshold = find_level(rule, measurement)
        previous, state = state, advance(state, level)
        change = None
        if state.level != previous.level:
            change = LevelChange(measurement.at, state.level, measurement.value, threshold)
        yield state, change
