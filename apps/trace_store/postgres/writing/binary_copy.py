"""`COPY` in PostgreSQL's binary format, faster than psycopg, which adapts each value in Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any, LiteralString
from uuid import UUID

from psycopg.types.numeric import DecimalBinaryDumper

from apps.core.connections import raw_cursor, sql

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_TEXT = 25
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_length = struct.Struct("!i").pack
_int8 = struct.Struct("!iq").pack
_array_head = struct.Struct("!iiiii").pack
_decimals = DecimalBinaryDumper(Decimal)


def _encode_bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


def _encode_text(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


def _encode_uuid(value: UUID) -> bytes:
    return b"\0\0\0\x10" + value.int.to_bytes(16, "big")


@lru_cache(4096)
def _repeated_uuid(value: UUID) -> bytes:
    return _encode_uuid(value)


def _encode_bool(value: bool) -> bytes:  # noqa: FBT001  (a value, not a flag)
    return b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0"


def _encode_int8(value: int) -> bytes:
    return _int8(8, value)


def _encode_timestamptz(value: datetime) -> bytes:
    elapsed = value - _EPOCH
    return _int8(8, (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds)


def _encode_numeric(value: Decimal) -> bytes:
    return _encode_bytes(bytes(_decimals.dump(value) or b""))


def _encode_jsonb(value: bytes) -> bytes:
    return _length(len(value) + 1) + b"\x01" + value


def _encode_texts(value: Sequence[str]) -> bytes:
    return _encode_text_array(tuple(value))


@lru_cache(4096)
def _encode_text_array(values: tuple[str, ...]) -> bytes:
    if not values:
        return _encode_bytes(struct.pack("!iii", 0, 0, _TEXT))
    return _encode_bytes(
        _array_head(1, 0, _TEXT, len(values), 1) + b"".join(map(_encode_text, values))
    )


_ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "uuid": _encode_uuid,
    "bool": _encode_bool,
    "int8": _encode_int8,
    "timestamptz": _encode_timestamptz,
    "numeric": _encode_numeric,
    "text": _encode_text,
    "text[]": _encode_texts,
    "jsonb": _encode_jsonb,
    "bytea": _encode_bytes,
}
_REPEATED_COLUMNS = {"workspace_id", "project_id", "trace_id", "parent_run_id"}


def copy_rows(
    table: LiteralString, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Append the rows to the table; a column that a row does not have is null."""
    statement = sql(f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)")
    data = encode_rows(columns, rows)
    with raw_cursor() as cursor, cursor.copy(statement) as stream:
        stream.write(data)


def encode_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the rows in the binary format of `COPY`."""
    null_row = dict.fromkeys(columns)
    select_values = itemgetter(*columns)
    rows_of_values = [select_values({**null_row, **row}) for row in rows]
    # Column by column, so that the encoder is looked up once per column.
    encoded = [
        _encode_column(_repeated_uuid if name in _REPEATED_COLUMNS else _ENCODERS[kind], values)
        for (name, kind), values in zip(
            columns.items(), zip(*rows_of_values, strict=True), strict=True
        )
    ]
    head = struct.pack("!h", len(columns))
    lines = zip(repeat(head), *encoded, strict=False)
    return b"".join([_HEADER, *(b"".join(line) for line in lines), _TRAILER])


def _encode_column(encode: Callable[[Any], bytes], values: Sequence[Any]) -> list[bytes]:
    return [_NULL if value is None else encode(value) for value in values]
