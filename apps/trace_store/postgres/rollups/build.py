"""Builds the rows of rollups: quarter hours from runs, hours from quarter hours, days from hours.

The change count of an interval is read before its runs and stored as the built count afterwards.
A run that commits in between is counted later and leaves the interval dirty.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from apps.core.connections import raw_cursor, sql
from apps.core.json import dumps_text
from apps.trace_store.metrics import ALL_MEASURES, COUNT_NAMES, RunMetrics
from apps.trace_store.postgres.rollups.dimensions import (
    BY_NAME_AND_MODEL,
    BY_NOTHING,
    BY_TYPE,
    TRACE_SCOPE,
    RollupDimensions,
)
from apps.trace_store.postgres.rollups.intervals import IS_IN_PLACE_SQL, Resolution
from apps.trace_store.postgres.statistics import aggregate_runs
from apps.trace_store.postgres.statistics.aggregate_runs import AggregationPlan, GroupExpression

MAX_NAMES = {Resolution.QUARTER: 200, Resolution.HOUR: 400, Resolution.DAY: 800}
"""Intervals with more names get no rows by name: there would be about as many rows as runs."""
QUIET_PERIOD = timedelta(seconds=5)
"""Intervals that changed more recently are skipped: further writes would make them dirty again."""
_BATCH_SIZE = 200

_DIMENSIONS = ("granularity", "scope", "run_type", "status", "name", "model")
COLUMNS = {
    "workspace_id": "uuid",
    "project_id": "uuid",
    "resolution": "int2",
    "begins_at": "timestamptz",
    "granularity": "int2",
    "scope": "int2",
    "run_type": "text",
    "status": "text",
    "name": "text",
    "model": "text",
    **dict.fromkeys(COUNT_NAMES[:-1], "int8"),
    "last_start": "timestamptz",
    **{str(measure): "bytea" for measure in ALL_MEASURES},
    "details": "bytea",  # in binary, jsonb is a version byte and text
}

_process_lock = threading.Lock()


class RollupInterval(NamedTuple):
    workspace_id: UUID
    project_id: UUID
    resolution: Resolution
    begins_at: datetime


RollupRows = dict[RollupDimensions, RunMetrics]


def rebuild_dirty_intervals(seconds: float = 20.0, *, quiet: timedelta = QUIET_PERIOD) -> int:
    """Rebuild quiet dirty intervals until none is left or time is up; return their number.

    Safe to repeat and to run concurrently: a lock per interval admits one process.
    """
    if not _process_lock.acquire(blocking=False):
        return 0
    try:
        return _rebuild_until(time.monotonic() + seconds, quiet)
    finally:
        _process_lock.release()


def _rebuild_until(deadline: float, quiet: timedelta) -> int:
    built = 0
    # Finer intervals first, because coarser ones are built from them.
    for resolution in Resolution:
        after: RollupInterval | None = None
        while time.monotonic() < deadline:
            intervals = _dirty_intervals(resolution, quiet, after)
            for interval in intervals:
                built += rebuild_interval(interval)
                if time.monotonic() > deadline:
                    return built
            if len(intervals) < _BATCH_SIZE:
                break
            after = intervals[-1]
    return built


def _dirty_intervals(
    resolution: Resolution, quiet: timedelta, after: RollupInterval | None
) -> list[RollupInterval]:
    key = "workspace_id, project_id, begins_at"
    after_condition = "" if after is None else f"AND ({key}) > (%s, %s, %s)"
    # A coarser interval with dirty parts cannot be built yet.
    parts_condition = (
        "AND NOT EXISTS (SELECT FROM trace_store_rollup_interval p WHERE p.workspace_id ="
        " s.workspace_id"
        " AND p.project_id = s.project_id AND p.resolution = s.resolution - 1 AND p.change_count"
        " <> p.built_count"
        " AND p.begins_at >= s.begins_at AND p.begins_at < s.begins_at + %s)"
    )
    values: list[object] = [resolution, quiet]
    if resolution is Resolution.QUARTER:
        parts_condition = ""
    else:
        values.append(resolution.width)
    values += [] if after is None else [after.workspace_id, after.project_id, after.begins_at]
    statement = (
        f"SELECT {key} FROM trace_store_rollup_interval s WHERE resolution = %s AND change_count"
        " <> built_count"
        f" AND changed_at <= clock_timestamp() - %s {parts_condition} {after_condition}"
        f" ORDER BY {key} LIMIT {_BATCH_SIZE}"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        return [RollupInterval(row[0], row[1], resolution, row[2]) for row in cursor]


@transaction.atomic
def rebuild_interval(interval: RollupInterval) -> bool:
    """Rebuild the rows; return False if another process does so or a finer interval is dirty."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"trace_store.rollup:{interval}"],
        )
        if cursor.fetchone() != (True,):
            return False
        cursor.execute(
            "SELECT change_count FROM trace_store_rollup_interval WHERE workspace_id = %s AND"
            " project_id = %s"
            " AND resolution = %s AND begins_at = %s",
            list(interval),
        )
        row = cursor.fetchone()
    if row is None:
        return False
    (change_count,) = row
    if interval.resolution is Resolution.QUARTER:
        rows, has_names = _from_runs(interval), True
    else:
        finer_have_names = _finer_rollups_have_names(interval)
        if finer_have_names is None:
            return False
        rows, has_names = _from_finer_rollups(interval), finer_have_names
    names = {
        (dimensions.name, dimensions.model)
        for dimensions in rows
        if dimensions.granularity == BY_NAME_AND_MODEL
    }
    if not has_names or len(names) > MAX_NAMES[interval.resolution]:
        has_names = False
        rows = {
            dimensions: metrics
            for dimensions, metrics in rows.items()
            if dimensions.granularity != BY_NAME_AND_MODEL
        }
    _replace_rows(interval, rows)
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_rollup_interval SET built_count = %s, built_at = clock_timestamp(),"
            " has_names = %s"
            " WHERE workspace_id = %s AND project_id = %s AND resolution = %s AND begins_at = %s",
            [change_count, has_names, *interval],
        )
    return True


def _from_runs(interval: RollupInterval) -> RollupRows:
    """Build all granularities of a quarter hour from its runs."""
    return _with_coarser_rows(dict(_aggregate_quarter(interval)))


def _aggregate_quarter(interval: RollupInterval) -> Iterator[tuple[RollupDimensions, RunMetrics]]:
    begin = interval.begins_at
    in_interval: list[aggregate_runs.Condition] = [
        ("r.project_id = %s", [interval.project_id]),
        (
            "r.partition_time >= %s AND r.partition_time < %s",
            [begin, begin + interval.resolution.width],
        ),
        (IS_IN_PLACE_SQL, []),
    ]
    groups = [
        aggregate_runs.RUN_TYPE_SQL,
        aggregate_runs.STATUS_SQL,
        aggregate_runs.NAME_SQL,
        "coalesce(r.model, '')",
    ]
    for of_traces in (False, True):
        scope = str(TRACE_SCOPE) if of_traces else aggregate_runs.SCOPE_SQL
        aggregation = AggregationPlan(
            workspace_id=interval.workspace_id,
            parts=[[*in_interval, ("r.parent_run_id IS NULL", [])] if of_traces else in_interval],
            groups=[GroupExpression(expression) for expression in (scope, *groups)],
            of_traces=of_traces,
            details=True,
            since=begin - aggregate_runs.ANCESTOR_WINDOW,
        )
        for values, metrics in aggregate_runs.aggregate_runs(aggregation):
            yield RollupDimensions(BY_NAME_AND_MODEL, *values), metrics


def _with_coarser_rows(rows_by_name: RollupRows) -> RollupRows:
    rows = dict(rows_by_name)
    for dimensions, metrics in rows_by_name.items():
        for coarse in (
            RollupDimensions(BY_TYPE, dimensions.scope, dimensions.run_type, dimensions.status),
            RollupDimensions(BY_NOTHING, dimensions.scope),
        ):
            rows.setdefault(coarse, RunMetrics()).add(metrics)
    return rows


def _finer_rollups_have_names(interval: RollupInterval) -> bool | None:
    """Whether all finer intervals have rows by name; None if one of them is dirty."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT bool_and(change_count = built_count), bool_and(has_names) FROM"
            " trace_store_rollup_interval"
            " WHERE workspace_id = %s AND project_id = %s AND resolution = %s"
            " AND begins_at >= %s AND begins_at < %s",
            [
                interval.workspace_id,
                interval.project_id,
                interval.resolution - 1,
                interval.begins_at,
                interval.begins_at + interval.resolution.width,
            ],
        )
        are_clean, have_names = cursor.fetchone() or (None, None)
        return bool(have_names) if are_clean else None


def _from_finer_rollups(interval: RollupInterval) -> RollupRows:
    rows: RollupRows = {}
    statement = (
        f"SELECT {', '.join(_DIMENSIONS)}, {', '.join(COUNT_NAMES)},"
        f" {', '.join(ALL_MEASURES)}, details::text FROM trace_store_rollup"
        " WHERE workspace_id = %s AND project_id = %s AND resolution = %s"
        " AND begins_at >= %s AND begins_at < %s"
    )
    with raw_cursor() as cursor:
        cursor.execute(
            sql(statement),
            [
                interval.workspace_id,
                interval.project_id,
                interval.resolution - 1,
                interval.begins_at,
                interval.begins_at + interval.resolution.width,
            ],
            binary=True,
        )
        for row in cursor:
            dimensions = RollupDimensions(*row[:6])
            rows.setdefault(dimensions, RunMetrics()).add(
                aggregate_runs.metrics_from_row(row[6:], ALL_MEASURES)
            )
    return rows


def _replace_rows(interval: RollupInterval, rows: Mapping[RollupDimensions, RunMetrics]) -> None:
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM trace_store_rollup WHERE workspace_id = %s AND project_id = %s"
            " AND resolution = %s AND begins_at = %s",
            list(interval),
        )
        statement = sql(
            f"COPY trace_store_rollup ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)"
        )
        with cursor.copy(statement) as copy:
            copy.set_types(list(COLUMNS.values()))
            for dimensions, metrics in rows.items():
                copy.write_row([*interval, *dimensions, *_column_values(metrics)])


def _column_values(metrics: RunMetrics) -> Iterator[object]:
    for name in COUNT_NAMES:
        yield getattr(metrics, name)
    for measure in ALL_MEASURES:
        distribution = metrics.measures.get(measure)
        yield None if distribution is None else distribution.to_bytes()
    yield b"\x01" + dumps_text(metrics.details).encode() if metrics.details else None
