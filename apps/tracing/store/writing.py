"""Writing runs: beginnings by binary `COPY`, the rest by one upsert; safe to repeat.

A request whose runs nobody has seen, which is nearly every request, costs two `COPY`s. When one of
its runs is known after all, PostgreSQL says so by the primary key, and the runs are written again
by upserts that lay what is new over, or under, what is there.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec
import psycopg
from django.db import IntegrityError, transaction

from apps.core.json import storable
from apps.tracing.json_repair import ODD_NUMBER, repair
from apps.tracing.store import partitions
from apps.tracing.store.packing import pack_all
from apps.tracing.store.raw import raw_cursor, sql
from apps.tracing.store.types import Attachment, Payload

KEY = {"workspace_id": "uuid", "id": "uuid", "project_id": "uuid", "placed_at": "timestamptz"}
FIXED = KEY | {
    "trace_id": "uuid",
    "parent_run_id": "uuid",
    "dotted_order": "text",
    "received_at": "timestamptz",
}
"""What the run's place decides, and what the first to come decides."""
SAID = {
    "reference_example_id": "uuid",
    "start_time": "timestamptz",
    "end_time": "timestamptz",
    "first_token_time": "timestamptz",
    "prompt_tokens": "int8",
    "completion_tokens": "int8",
    "total_tokens": "int8",
    "prompt_cost": "numeric",
    "completion_cost": "numeric",
    "total_cost": "numeric",
    "name": "text",
    "run_type": "text",
    "model": "text",
    "thread_key": "text",
    "error_preview": "text",
    "inputs_preview": "text",
    "outputs_preview": "text",
    "tags": "text[]",
    "usage_details": "jsonb",
}
"""What clients say, one value instead of another."""
MERGED = {"metadata": "jsonb", "attachments": "jsonb"}
"""Objects, merged key by key."""
PAYLOADS = {str(payload): "bytea" for payload in Payload}
RUN_COLUMNS = FIXED | SAID | MERGED
PAYLOAD_COLUMNS = KEY | PAYLOADS

Key = tuple[UUID, UUID, datetime]
Row = dict[str, Any]


@dataclass(slots=True)
class Content:
    """What is said about a run: only what is there, so that it can be laid over what is known."""

    columns: Row = field(default_factory=dict)
    """Values of `SAID`; those of jsonb columns as JSON."""
    metadata: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    payloads: Mapping[Payload, bytes] = field(default_factory=dict)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)

    def over(self, other: Content) -> Content:
        """Both, this one's word counting where they differ."""
        return Content(
            other.columns | self.columns,
            {**other.metadata, **self.metadata},
            {**other.payloads, **self.payloads},
            {**other.attachments, **self.attachments},
        )


@dataclass(slots=True)
class RunWrite:
    """A run to be written: the values of `FIXED`, and what is said about it."""

    fixed: Row
    begun: Content | None = None
    """A beginning fills gaps: it may come after its update."""
    updated: Content | None = None
    """An update replaces."""

    @property
    def key(self) -> Key:
        return self.fixed["id"], self.fixed["project_id"], self.fixed["placed_at"]

    @property
    def whole(self) -> Content:
        if self.begun is None or self.updated is None:
            return self.begun or self.updated or Content()
        return self.updated.over(self.begun)


def write(runs: Sequence[RunWrite]) -> set[Key]:
    """Store the runs in the caller's transaction; return the keys of those not there before."""
    if not runs:
        return set()
    # One order for all writers, so that two requests with the same runs do not wait in a circle.
    runs = sorted(runs, key=lambda run: run.key)
    partitions.ensure_covered(max(run.fixed["placed_at"] for run in runs))
    begun = [run for run in runs if run.begun is not None]
    updates = [run for run in runs if run.begun is None]
    if begun and _copied(begun):
        fresh = {run.key for run in begun}
    else:
        fresh = _upsert(begun, [run.begun for run in begun], wins=False)
        updates = [run for run in runs if run.updated is not None]
    return fresh | _upsert(updates, [run.updated for run in updates], wins=True)


def _copied(runs: Sequence[RunWrite]) -> bool:
    """Whether the runs were new and are stored; False leaves no trace of the attempt."""
    rows, payloads = _rows(runs, [run.whole for run in runs])
    try:
        with transaction.atomic():
            _copy("tracing_run", RUN_COLUMNS, rows)
            _copy("tracing_runpayload", PAYLOAD_COLUMNS, payloads)
    except IntegrityError as error:
        if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
            raise
        return False
    return True


def _copy(table: LiteralString, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    # In binary, jsonb is a version byte and text, and takes the way of bytes.
    types = ["bytea" if kind == "jsonb" else kind for kind in columns.values()]
    names = list(columns)
    objects = [name for name, kind in columns.items() if kind == "jsonb"]
    statement = sql(f"COPY {table} ({', '.join(names)}) FROM STDIN (FORMAT binary)")
    with raw_cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(types)
        for row in rows:
            values = row
            if objects:
                values = {**row, **{n: b"\x01" + row[n] for n in objects if n in row}}
            copy.write_row([values.get(name) for name in names])


def _upsert(
    runs: Sequence[RunWrite], contents: Sequence[Content | None], *, wins: bool
) -> set[Key]:
    """Insert the runs or lay what is said over (`wins`) or under what is there."""
    if not runs:
        return set()
    rows, payloads = _rows(runs, [content or Content() for content in contents])
    with raw_cursor() as cursor:
        cursor.execute(_UPSERT_RUNS[wins], _arrays(RUN_COLUMNS, rows), binary=True)
        # The time of receipt is the first comer's: where it is another's, the run was there.
        came = {run.key: run.fixed["received_at"] for run in runs}
        fresh = {
            (row[0], row[1], row[2]) for row in cursor if came[row[0], row[1], row[2]] == row[3]
        }
        cursor.execute(_UPSERT_PAYLOADS[wins], _arrays(PAYLOAD_COLUMNS, payloads))
    return fresh


def _upsert_statement(table: str, columns: Mapping[str, str], *, wins: bool) -> LiteralString:
    # Arrays of arrays and of jsonb travel as text.
    travels = {n: "text" if kind in {"text[]", "jsonb"} else kind for n, kind in columns.items()}
    arrays = ", ".join(f"%b::{kind}[]" for kind in travels.values())
    values = ", ".join(f"{name}::{kind}" for name, kind in columns.items())
    sets = [_set(name, wins=wins) for name in columns if name not in FIXED]
    return sql(
        f"INSERT INTO {table} AS t ({', '.join(columns)})"
        f" SELECT {values} FROM unnest({arrays}) AS said({', '.join(columns)})"
        f" ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {', '.join(sets)}"
    )


def _set(name: str, *, wins: bool) -> str:
    first, second = (f"excluded.{name}", f"t.{name}") if wins else (f"t.{name}", f"excluded.{name}")
    if name in MERGED:
        both = f"{second} || {first}"
        return f"{name} = coalesce({both}, {first}, {second})"
    return f"{name} = coalesce({first}, {second})"


_UPSERT_RUNS = {
    wins: _upsert_statement("tracing_run", RUN_COLUMNS, wins=wins)
    + " RETURNING id, project_id, placed_at, received_at"
    for wins in (False, True)
}
_UPSERT_PAYLOADS = {
    wins: _upsert_statement("tracing_runpayload", PAYLOAD_COLUMNS, wins=wins)
    for wins in (False, True)
}


def _rows(runs: Sequence[RunWrite], contents: Sequence[Content]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables, payloads packed."""
    rows: list[Row] = []
    payloads: list[Row] = []
    values: list[bytes] = []
    for run, content in zip(runs, contents, strict=True):
        row = run.fixed | content.columns
        if content.metadata:
            row["metadata"] = _metadata_json(content.metadata)
        if content.attachments:
            row["attachments"] = msgspec.json.encode(
                {
                    name: {"path": one.path, "mime_type": one.mime_type, "size": one.size}
                    for name, one in content.attachments.items()
                }
            )
        rows.append(row)
        values += content.payloads.values()
    packed = iter(pack_all(values))
    for run, content in zip(runs, contents, strict=True):
        row = {name: run.fixed[name] for name in KEY}
        row |= {str(payload): next(packed) for payload in content.payloads}
        payloads.append(row)
    return rows, payloads


def _metadata_json(metadata: Mapping[str, msgspec.Raw]) -> bytes:
    """Metadata as jsonb takes it, whole numbers to the last digit."""
    text: bytes = msgspec.json.encode(metadata)
    # jsonb fails on a number past its own range, which `repair` makes null.
    return storable(repair(text) if ODD_NUMBER.search(text) else text)


def _arrays(columns: Mapping[str, str], rows: Sequence[Row]) -> list[list[Any]]:
    arrays: list[list[Any]] = []
    for name, kind in columns.items():
        column = [row.get(name) for row in rows]
        if kind == "jsonb":
            column = [None if value is None else value.decode() for value in column]
        elif kind == "text[]":
            column = [None if value is None else _array_literal(value) for value in column]
        arrays.append(column)
    return arrays


def _array_literal(values: Sequence[str]) -> str:
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
