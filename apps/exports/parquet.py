"""Writes runs to Parquet: one row per run, one column per API field.

JSON objects and lists are stored as their original JSON text, costs as decimals. Large media are
references: `attachments` has their names, types and sizes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apps.core.json import Fragment, dumps
from apps.exports.models import Compression
from apps.trace_store import Payload, RunDetail

CONTENT_TYPE = "application/vnd.apache.parquet"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MONEY = pa.decimal128(38, 18)
_CODECS = {
    Compression.NONE: "none",
    Compression.GZIP: "gzip",
    Compression.SNAPPY: "snappy",
    Compression.ZSTANDARD: "zstd",
}


def _to_json(value: Any) -> str | None:
    if value is None:
        return None
    return (value if isinstance(value, Fragment) else dumps(value)).decode("utf-8", "replace")


def _read_payload(payload: Payload) -> Callable[[RunDetail], Any]:
    return lambda run: _to_json(run.stored(payload))


def _read_detail(name: str) -> Callable[[RunDetail], Any]:
    return lambda run: _to_json((run.row.usage.details or {}).get(name))


def _read_latency(run: RunDetail) -> float | None:
    latency = run.row.latency
    return None if latency is None else latency.total_seconds()


def _read_error(run: RunDetail) -> Any:
    return run.value(Payload.ERROR)


def _read_attachments(run: RunDetail) -> str | None:
    files = run.row.attachments
    return _to_json({file.name: {"mime_type": file.mime_type, "size": file.size} for file in files})


COLUMNS: Mapping[str, tuple[pa.DataType, Callable[[RunDetail], Any]]] = {
    "id": (pa.string(), lambda run: str(run.row.id)),
    "tenant_id": (pa.string(), lambda run: str(run.row.workspace_id)),
    "session_id": (pa.string(), lambda run: str(run.row.project_id)),
    "trace_id": (pa.string(), lambda run: str(run.row.trace_id)),
    "parent_run_id": (
        pa.string(),
        lambda run: None if run.row.parent_run_id is None else str(run.row.parent_run_id),
    ),
    "parent_run_ids": (pa.string(), lambda run: _to_json(run.row.parent_run_ids)),
    "is_root": (pa.bool_(), lambda run: run.row.is_root),
    "dotted_order": (pa.string(), lambda run: run.row.dotted_order),
    "name": (pa.string(), lambda run: run.row.name),
    "run_type": (pa.string(), lambda run: str(run.row.run_type)),
    "status": (pa.string(), lambda run: str(run.row.status)),
    "start_time": (_TIMESTAMP, lambda run: run.row.start_time),
    "end_time": (_TIMESTAMP, lambda run: run.row.end_time),
    "first_token_time": (_TIMESTAMP, lambda run: run.row.first_token_time),
    "latency": (pa.float64(), _read_latency),
    "error": (pa.string(), _read_error),
    "inputs": (pa.string(), _read_payload(Payload.INPUTS)),
    "outputs": (pa.string(), _read_payload(Payload.OUTPUTS)),
    "extra": (pa.string(), _read_payload(Payload.EXTRA)),
    "events": (pa.string(), _read_payload(Payload.EVENTS)),
    "serialized": (pa.string(), _read_payload(Payload.SERIALIZED)),
    "tags": (pa.string(), lambda run: _to_json(list(run.row.tags))),
    "metadata": (pa.string(), lambda run: _to_json(run.row.metadata_json)),
    "thread_id": (pa.string(), lambda run: run.row.thread_key),
    "model": (pa.string(), lambda run: run.row.model),
    "reference_example_id": (
        pa.string(),
        lambda run: (
            None if run.row.reference_example_id is None else str(run.row.reference_example_id)
        ),
    ),
    "prompt_tokens": (pa.int64(), lambda run: run.row.usage.prompt_tokens),
    "completion_tokens": (pa.int64(), lambda run: run.row.usage.completion_tokens),
    "total_tokens": (pa.int64(), lambda run: run.row.usage.total_tokens),
    "prompt_token_details": (pa.string(), _read_detail("prompt_token_details")),
    "completion_token_details": (pa.string(), _read_detail("completion_token_details")),
    "prompt_cost": (_MONEY, lambda run: run.row.usage.prompt_cost),
    "completion_cost": (_MONEY, lambda run: run.row.usage.completion_cost),
    "total_cost": (_MONEY, lambda run: run.row.usage.total_cost),
    "prompt_cost_details": (pa.string(), _read_detail("prompt_cost_details")),
    "completion_cost_details": (pa.string(), _read_detail("completion_cost_details")),
    "attachments": (pa.string(), _read_attachments),
    "inserted_at": (_TIMESTAMP, lambda run: run.row.received_at),
}
"""The type of each field, and the function that reads it from a run."""
FEEDBACK = "feedback_stats"
"""A column that is read with one query for all runs of a file."""
FIELDS = (*COLUMNS, FEEDBACK)


def required_payloads(fields: Iterable[str]) -> set[Payload]:
    """Return the payloads that the fields need."""
    return {payload for payload in Payload if str(payload) in set(fields)}


def to_parquet(
    runs: Sequence[RunDetail],
    fields: Sequence[str],
    *,
    compression: str,
    feedback: Mapping[Any, Any],
) -> bytes:
    """Write the runs to one file. `feedback` maps run ids to feedback stats."""
    columns = {name: COLUMNS[name] for name in COLUMNS if name in fields}
    arrays = [
        pa.array([read(run) for run in runs], type=column_type)
        for column_type, read in columns.values()
    ]
    names = list(columns)
    if FEEDBACK in fields:
        names.append(FEEDBACK)
        arrays.append(
            pa.array([_to_json(feedback.get(run.row.id)) for run in runs], type=pa.string())
        )
    buffer = io.BytesIO()
    table = pa.table(arrays, names=names)
    pq.write_table(table, buffer, compression=_CODECS[Compression(compression)])
    return buffer.getvalue()
