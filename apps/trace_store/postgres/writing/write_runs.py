"""Writes runs: creates by binary `COPY`, everything else by one upsert. Repeating a write is safe.

A request whose runs are all new, which is nearly every request, costs three `COPY`s. If one of the
runs exists, PostgreSQL reports it by the key table, and the caller writes again in a new
transaction by upserts: an update overwrites the stored values, a create fills the gaps.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from operator import attrgetter
from typing import Any, LiteralString

import msgspec
import psycopg
from django.db import IntegrityError, OperationalError, transaction

from apps.core.connections import raw_cursor, sql
from apps.core.json import storable
from apps.trace_store.errors import WriteConflict
from apps.trace_store.json_repair import ODD_NUMBER, repair
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.payload_storage import compress_payloads
from apps.trace_store.postgres.writing.binary_copy import copy_rows
from apps.trace_store.postgres.writing.run_keys import KEY_COLUMNS, claim_keys, insert_keys
from apps.trace_store.run_writes import Row, RunContent, RunWrite
from apps.trace_store.types import Payload, RunKey

IDENTITY_COLUMNS = KEY_COLUMNS | {
    "trace_id": "uuid",
    "parent_run_id": "uuid",
    "dotted_order": "text",
    "received_at": "timestamptz",
}
"""Set by the first write of a run: its key and its position in the tree."""
VALUE_COLUMNS = {
    "is_created": "bool",
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
"""Values of clients, replaced as a whole."""
MERGED_COLUMNS = {"metadata": "jsonb", "attachments": "jsonb"}
"""JSON objects, merged key by key."""
PAYLOAD_VALUE_COLUMNS = {"is_created": "bool"} | {str(payload): "bytea" for payload in Payload}
RUN_COLUMNS = IDENTITY_COLUMNS | VALUE_COLUMNS | MERGED_COLUMNS
PAYLOAD_COLUMNS = KEY_COLUMNS | PAYLOAD_VALUE_COLUMNS


@contextmanager
def write_transaction(*, optimistic: bool) -> Iterator[None]:
    """A transaction for `write_runs`; with `optimistic`, conflicts raise `WriteConflict`."""
    try:
        with transaction.atomic():
            yield
    except (IntegrityError, OperationalError) as error:
        if optimistic and isinstance(error.__cause__, _CONFLICTS):
            raise WriteConflict from error
        raise


def write_runs(runs: Sequence[RunWrite], *, optimistic: bool) -> set[RunKey]:
    """Store the runs in a `write_transaction`; return the keys of new runs.

    With `optimistic`, creates are only inserted. Without it, requests with the same runs may be
    written concurrently: all lock rows in the same order, so none deadlock.
    """
    if not runs:
        return set()
    runs = sorted(runs, key=_key_of)
    # Optimistic: creates and updates lock in two orders, so a deadlock must end quickly. Else: when
    # the table is locked, the client retries instead of blocking a thread for long.
    with raw_cursor() as cursor:
        cursor.execute(_OPTIMISTIC_TIMEOUT if optimistic else _UPSERT_TIMEOUT)
    partitions.ensure_partitions(max(run.identity["partition_time"] for run in runs))
    workspace_id = runs[0].identity["workspace_id"]
    if not optimistic:
        claim_keys(workspace_id, runs)
        new_keys = _upsert(runs, [run.create or run.update or RunContent() for run in runs])
        both = [run for run in runs if run.create is not None and run.update is not None]
        _upsert(both, [run.update or RunContent() for run in both], as_update=True)
        return new_keys
    creates = [run for run in runs if run.create is not None]
    updates = [run for run in runs if run.create is None]
    if creates:
        insert_keys(creates)
        rows, payloads = _rows(creates, [run.merged for run in creates])
        copy_rows("trace_store_run", RUN_COLUMNS, rows)
        copy_rows("trace_store_run_payload", PAYLOAD_COLUMNS, payloads)
    claim_keys(workspace_id, updates)
    new_keys = _upsert(updates, [run.update or RunContent() for run in updates])
    return new_keys.union(map(_key_of, creates))


_key_of = attrgetter("key")
_OPTIMISTIC_TIMEOUT: LiteralString = "SET LOCAL lock_timeout = '100ms'"
_UPSERT_TIMEOUT: LiteralString = "SET LOCAL lock_timeout = '5s'"


_CONFLICTS = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    # Another request moved the run to another partition.
    psycopg.errors.SerializationFailure,
)


def _upsert(
    runs: Sequence[RunWrite], contents: Sequence[RunContent], *, as_update: bool = False
) -> set[RunKey]:
    """Insert the runs; for existing ones apply the update, or fill gaps from the create.

    With `as_update`, the content overwrites even if the run's create is in the same batch.
    """
    if not runs:
        return set()
    rows, payloads = _rows(runs, contents)
    for row in (*rows, *payloads):
        row["is_created"] = row["is_created"] and not as_update
    values = [*_arrays(PAYLOAD_COLUMNS, payloads), *_arrays(RUN_COLUMNS, rows)]
    with raw_cursor() as cursor:
        cursor.execute(_UPSERT, values, binary=True, prepare=True)
        # The first write sets the time of receipt: another time means that the run existed.
        received = {run.key: run.identity["received_at"] for run in runs}
        return {
            (row[0], row[1], row[2]) for row in cursor if received[row[0], row[1], row[2]] == row[3]
        }


def _upsert_statement(table: str, columns: Mapping[str, str]) -> LiteralString:
    # Arrays of arrays and of jsonb travel as text.
    transport_types = {
        n: "text" if kind in {"text[]", "jsonb"} else kind for n, kind in columns.items()
    }
    arrays = ", ".join(f"%b::{kind}[]" for kind in transport_types.values())
    values = ", ".join(f"{name}::{kind}" for name, kind in columns.items())
    sets = [_set(name) for name in columns if name not in IDENTITY_COLUMNS]
    return sql(
        f"INSERT INTO {table} AS t ({', '.join(columns)})"
        f" SELECT {values} FROM unnest({arrays}) AS input({', '.join(columns)})"
        f" ON CONFLICT ({', '.join(KEY_COLUMNS)}) DO UPDATE SET {', '.join(sets)}"
    )


def _set(name: str) -> str:
    """The assignment for an existing run: an update overwrites, a create fills gaps."""
    new, old = f"excluded.{name}", f"t.{name}"
    if name == "is_created":
        return f"{name} = {old} OR {new}"
    update_value = (
        f"coalesce({old} || {new}, {new}, {old})"
        if name in MERGED_COLUMNS
        else f"coalesce({new}, {old})"
    )
    create_value = (
        f"coalesce({new} || {old}, {old}, {new})"
        if name in MERGED_COLUMNS
        else f"coalesce({old}, {new})"
    )
    return f"{name} = CASE WHEN excluded.is_created THEN {create_value} ELSE {update_value} END"


_UPSERT = sql(
    f"WITH payloads AS ({_upsert_statement('trace_store_run_payload', PAYLOAD_COLUMNS)})"
    f" {_upsert_statement('trace_store_run', RUN_COLUMNS)}"
    " RETURNING id, project_id, partition_time, received_at"
)


def _rows(runs: Sequence[RunWrite], contents: Sequence[RunContent]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables, with compressed payloads."""
    rows: list[Row] = []
    payloads: list[Row] = []
    values: list[bytes] = []
    for run, content in zip(runs, contents, strict=True):
        row = run.identity | content.columns | {"is_created": run.create is not None}
        if content.metadata:
            row["metadata"] = _metadata_json(content.metadata)
        if content.attachments:
            row["attachments"] = msgspec.json.encode(
                {
                    name: {"path": result.path, "mime_type": result.mime_type, "size": result.size}
                    for name, result in content.attachments.items()
                }
            )
        rows.append(row)
        values += content.payloads.values()
    packed = iter(compress_payloads(values))
    for run, content in zip(runs, contents, strict=True):
        row = {name: run.identity[name] for name in KEY_COLUMNS} | {
            "is_created": run.create is not None
        }
        row |= {str(payload): next(packed) for payload in content.payloads}
        payloads.append(row)
    return rows, payloads


def _metadata_json(text: bytes) -> bytes:
    """Metadata in the form that jsonb accepts, with all digits of whole numbers."""
    # jsonb fails on a number past its own range, which `repair` makes null.
    if ODD_NUMBER.search(text):
        text = repair(text)
    if _EXPONENT.search(text):
        text = _STRING_OR_EXPONENT.sub(_expand_exponent, text)
    return storable(text)


_EXPONENT = re.compile(rb"\d[eE]\+?\d\d")
_STRING_OR_EXPONENT = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?[eE]\+?\d+)')


def _expand_exponent(match: re.Match[bytes]) -> bytes:
    """Write out a large float: jsonb returns 1e30 as a whole number, which is another value."""
    if match[1] is None:
        return match[0]
    digits = f"{Decimal(match[1].decode()):f}"
    return (digits if "." in digits else f"{digits}.0").encode()


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
