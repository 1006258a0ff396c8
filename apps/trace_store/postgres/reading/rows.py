"""Converts rows of `trace_store_run` to values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.core.connections import raw_cursor, sql
from apps.core.json import Fragment, loads
from apps.trace_store.dotted_order import MAX_CLOCK_SKEW
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME, LATEST_TIME
from apps.trace_store.types import Attachment, RunRow, Usage

_AMOUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_cost",
    "completion_cost",
    "total_cost",
)
USAGE = f"{', '.join(f'r.{name}' for name in _AMOUNTS)}, r.usage_details::text"
SUMS = ", ".join(f"r.sum_{name}" for name in _AMOUNTS)
COLUMNS = (
    "r.workspace_id, r.project_id, r.id, r.trace_id, r.parent_run_id, r.dotted_order,"
    " r.partition_time,"
    " r.name, r.run_type, r.start_time, r.end_time, r.first_token_time, r.received_at,"
    " r.error_preview, r.inputs_preview, r.outputs_preview, r.tags, r.metadata::text,"
    " r.thread_key, r.model, r.reference_example_id, r.attachments::text, r.price_model_id,"
    f" {USAGE}, {SUMS}"
)
_USAGE_INDEX = 23
_SUMS_INDEX = _USAGE_INDEX + len(_AMOUNTS) + 1

StoredRun = tuple[RunRow, Usage | None]
"""A run with its own usage, and the stored total of its descendants."""

_NO_METADATA = Fragment(b"{}")


def partition_lower_bound(start_time: datetime) -> datetime:
    """A lower bound of the partition times of runs that start at this time or later."""
    return max(start_time, EARLIEST_TIME) - MAX_CLOCK_SKEW


def partition_upper_bound(start_time: datetime) -> datetime:
    """An upper bound of the partition times of runs that start at this time or earlier."""
    return min(start_time, LATEST_TIME) + MAX_CLOCK_SKEW


def select_runs(statement: str, values: Sequence[Any]) -> list[StoredRun]:
    """Execute a statement that selects `COLUMNS` of `trace_store_run r`."""
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        return [run_from_row(row) for row in cursor.fetchall()]


def run_from_row(row: Sequence[Any]) -> StoredRun:
    """Convert the columns of `COLUMNS`."""
    partition_time = row[6]
    metadata, tags = row[17], row[16]
    run = RunRow(
        workspace_id=row[0],
        project_id=row[1],
        id=row[2],
        trace_id=row[3],
        parent_run_id=row[4],
        dotted_order=row[5],
        partition_time=partition_time,
        # An update without its create has no name and type.
        name=row[7] or "",
        run_type=row[8] or "chain",
        start_time=row[9] or partition_time,
        end_time=row[10],
        first_token_time=row[11],
        received_at=row[12],
        error_preview=row[13],
        inputs_preview=row[14],
        outputs_preview=row[15],
        tags=tags or [],
        metadata_json=Fragment(metadata.encode()) if metadata else _NO_METADATA,
        thread_key=row[18],
        model=row[19],
        reference_example_id=row[20],
        attachments=_parse_attachments(row[21]) if row[21] else [],
        price_model_id=row[22],
        usage=usage_from_row(row[_USAGE_INDEX:_SUMS_INDEX]),
    )
    sums = row[_SUMS_INDEX:]
    return run, usage_from_row([*sums, None]) if any(item is not None for item in sums) else None


def _parse_attachments(text: str) -> list[Attachment]:
    return [Attachment(name=name, **fields) for name, fields in loads(text).items()]


def usage_from_row(row: Sequence[Any]) -> Usage:
    """Convert the columns of `USAGE`."""
    return Usage(
        prompt_tokens=row[0],
        completion_tokens=row[1],
        total_tokens=row[2],
        prompt_cost=row[3],
        completion_cost=row[4],
        total_cost=row[5],
        details=None if row[6] is None else loads(row[6]),
    )
