"""Writing runs: beginnings by binary `COPY`, the rest by one upsert; safe to repeat.

A request whose beginnings nobody has seen, which is nearly every request, costs two `COPY`s. When
one of them is known after all, PostgreSQL says so by the primary key, and the caller writes again
in a new transaction by upserts, which lay what is new over, or under, what is there.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, LiteralString
from uuid import UUID

import msgspec
import psycopg

from apps.core.json import storable
from apps.trace_store.json_repair import ODD_NUMBER, repair
from apps.trace_store.store import partitions
from apps.trace_store.store.copying import copy
from apps.trace_store.store.packing import pack_all
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.types import Attachment, Payload

KEY = {"workspace_id": "uuid", "id": "uuid", "project_id": "uuid", "placed_at": "timestamptz"}
FIXED = KEY | {
    "trace_id": "uuid",
    "parent_run_id": "uuid",
    "dotted_order": "text",
    "received_at": "timestamptz",
}
"""What the run's place decides, and what the first to come decides."""
SAID = {
    "is_begun": "bool",
    "reference_example_id": "uuid",
    "price_model_id": "uuid",
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
PAYLOADS = {"is_begun": "bool"} | {str(payload): "bytea" for payload in Payload}
RUN_COLUMNS = FIXED | SAID | MERGED
PAYLOAD_COLUMNS = KEY | PAYLOADS

Key = tuple[UUID, UUID, datetime]
Row = dict[str, Any]


@dataclass(slots=True)
class Content:
    """What is said about a run: only what is there, so that it can be laid over what is known."""

    columns: Row = field(default_factory=dict)
    """Values of `SAID`; those of jsonb columns as JSON."""
    metadata: bytes = b""
    """A JSON object, or nothing."""
    payloads: Mapping[Payload, bytes] = field(default_factory=dict)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)

    def over(self, other: Content) -> Content:
        """Both, this one's word counting where they differ."""
        return Content(
            other.columns | self.columns,
            _merged(other.metadata, self.metadata),
            {**other.payloads, **self.payloads},
            {**other.attachments, **self.attachments},
        )


def _merged(under: bytes, over: bytes) -> bytes:
    """Two JSON objects as one, numbers and texts as they came."""
    if not under or not over:
        return under or over
    return msgspec.json.encode(_members.decode(under) | _members.decode(over))


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


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


def write(runs: Sequence[RunWrite], *, hoping: bool) -> set[Key]:
    """Store the runs in the caller's transaction; return the keys of those not there before.

    `hoping` that no beginning is known is quick, and what it raises when it hoped in vain is told
    by `was_in_vain`: the transaction is then lost. Without it, any number of requests with the same
    runs may be written at once: all take their rows in one order, so none waits in a circle.
    """
    if not runs:
        return set()
    runs = sorted(runs, key=_key_of)
    # Hoping: beginnings and updates are two orders, and a circle between two requests ends quickly.
    # Else: a table that somebody holds makes the client wait and send again, not all threads wait.
    with raw_cursor() as cursor:
        cursor.execute(_HOPING if hoping else _PATIENT)
    partitions.ensure_covered(max(run.fixed["placed_at"] for run in runs))
    if not hoping:
        fresh = _upsert(runs, [run.begun or run.updated or Content() for run in runs])
        both = [run for run in runs if run.begun is not None and run.updated is not None]
        _upsert(both, [run.updated or Content() for run in both], over=True)
        return fresh
    begun = [run for run in runs if run.begun is not None]
    updates = [run for run in runs if run.begun is None]
    if begun:
        rows, payloads = _rows(begun, [run.whole for run in begun])
        copy("tracing_run", RUN_COLUMNS, rows)
        copy("tracing_runpayload", PAYLOAD_COLUMNS, payloads)
    fresh = _upsert(updates, [run.updated or Content() for run in updates])
    return fresh.union(map(_key_of, begun))


_key_of = attrgetter("key")
_HOPING: LiteralString = "SET LOCAL lock_timeout = '100ms'"
_PATIENT: LiteralString = "SET LOCAL lock_timeout = '5s'"


def was_in_vain(error: Exception) -> bool:
    """Whether a run was there already, or another request is writing it: write without hope."""
    return isinstance(error.__cause__, _IN_VAIN)


_IN_VAIN = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
)


def _upsert(
    runs: Sequence[RunWrite], contents: Sequence[Content], *, over: bool = False
) -> set[Key]:
    """Insert the runs, or lay an update over what is there and a beginning under it.

    With `over`, what is said is an update even where the run's beginning is written too.
    """
    if not runs:
        return set()
    rows, payloads = _rows(runs, contents)
    for row in (*rows, *payloads):
        row["is_begun"] = row["is_begun"] and not over
    values = [*_arrays(PAYLOAD_COLUMNS, payloads), *_arrays(RUN_COLUMNS, rows)]
    with raw_cursor() as cursor:
        cursor.execute(_UPSERT, values, binary=True, prepare=True)
        # The time of receipt is the first comer's: where it is another's, the run was there.
        came = {run.key: run.fixed["received_at"] for run in runs}
        return {
            (row[0], row[1], row[2]) for row in cursor if came[row[0], row[1], row[2]] == row[3]
        }


def _upsert_statement(table: str, columns: Mapping[str, str]) -> LiteralString:
    # Arrays of arrays and of jsonb travel as text.
    travels = {n: "text" if kind in {"text[]", "jsonb"} else kind for n, kind in columns.items()}
    arrays = ", ".join(f"%b::{kind}[]" for kind in travels.values())
    values = ", ".join(f"{name}::{kind}" for name, kind in columns.items())
    sets = [_set(name) for name in columns if name not in FIXED]
    return sql(
        f"INSERT INTO {table} AS t ({', '.join(columns)})"
        f" SELECT {values} FROM unnest({arrays}) AS said({', '.join(columns)})"
        f" ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {', '.join(sets)}"
    )


def _set(name: str) -> str:
    """The value of a column when the run is there: an update wins, a beginning fills gaps."""
    new, old = f"excluded.{name}", f"t.{name}"
    if name == "is_begun":
        return f"{name} = {old} OR {new}"
    update = (
        f"coalesce({old} || {new}, {new}, {old})" if name in MERGED else f"coalesce({new}, {old})"
    )
    begun = (
        f"coalesce({new} || {old}, {old}, {new})" if name in MERGED else f"coalesce({old}, {new})"
    )
    return f"{name} = CASE WHEN excluded.is_begun THEN {begun} ELSE {update} END"


_UPSERT = sql(
    f"WITH payloads AS ({_upsert_statement('tracing_runpayload', PAYLOAD_COLUMNS)})"
    f" {_upsert_statement('tracing_run', RUN_COLUMNS)}"
    " RETURNING id, project_id, placed_at, received_at"
)


def _rows(runs: Sequence[RunWrite], contents: Sequence[Content]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables, payloads packed."""
    rows: list[Row] = []
    payloads: list[Row] = []
    values: list[bytes] = []
    for run, content in zip(runs, contents, strict=True):
        row = run.fixed | content.columns | {"is_begun": run.begun is not None}
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
        row = {name: run.fixed[name] for name in KEY} | {"is_begun": run.begun is not None}
        row |= {str(payload): next(packed) for payload in content.payloads}
        payloads.append(row)
    return rows, payloads


def _metadata_json(text: bytes) -> bytes:
    """Metadata as jsonb takes it, whole numbers to the last digit."""
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
