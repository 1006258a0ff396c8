"""`COPY` in PostgreSQL's binary format, written here: psycopg asks Python for each id and time."""

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

from apps.trace_store.store.raw import raw_cursor, sql

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_TEXT = 25
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_length = struct.Struct("!i").pack
_eight = struct.Struct("!iq").pack
_array_head = struct.Struct("!iiiii").pack
_decimals = DecimalBinaryDumper(Decimal)


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


def _text(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


def _uuid(value: UUID) -> bytes:
    return b"\0\0\0\x10" + value.int.to_bytes(16, "big")


@lru_cache(4096)
def _uuid_of_many(value: UUID) -> bytes:
    return _uuid(value)


def _bool(value: bool) -> bytes:  # noqa: FBT001  (a value, not a choice)
    return b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0"


def _int8(value: int) -> bytes:
    return _eight(8, value)


def _timestamptz(value: datetime) -> bytes:
    since = value - _EPOCH
    return _eight(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _numeric(value: Decimal) -> bytes:
    return _bytes(bytes(_decimals.dump(value) or b""))


def _jsonb(value: bytes) -> bytes:
    return _length(len(value) + 1) + b"\x01" + value


def _texts(value: Sequence[str]) -> bytes:
    return _array(tuple(value))


@lru_cache(4096)
def _array(values: tuple[str, ...]) -> bytes:
    if not values:
        return _bytes(struct.pack("!iii", 0, 0, _TEXT))
    return _bytes(_array_head(1, 0, _TEXT, len(values), 1) + b"".join(map(_text, values)))


_WRITERS: Mapping[str, Callable[[Any], bytes]] = {
    "uuid": _uuid,
    "bool": _bool,
    "int8": _int8,
    "timestamptz": _timestamptz,
    "numeric": _numeric,
    "text": _text,
    "text[]": _texts,
    "jsonb": _jsonb,
    "bytea": _bytes,
}
_OF_MANY = {"workspace_id", "project_id", "trace_id", "parent_run_id"}


def copy(
    table: LiteralString, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Append the rows to the table; a column that a row does not have is null."""
    statement = sql(f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)")
    data = formatted(columns, rows)
    with raw_cursor() as cursor, cursor.copy(statement) as stream:
        stream.write(data)


def formatted(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as the server reads them."""
    nothing = dict.fromkeys(columns)
    pick = itemgetter(*columns)
    picked = [pick({**nothing, **row}) for row in rows]
    # Column by column: one loop without a look at what kind of value comes next.
    written = [
        _column(_uuid_of_many if name in _OF_MANY else _WRITERS[kind], values)
        for (name, kind), values in zip(columns.items(), zip(*picked, strict=True), strict=True)
    ]
    head = struct.pack("!h", len(columns))
    lines = zip(repeat(head), *written, strict=False)
    return b"".join([_HEAD, *(b"".join(line) for line in lines), _END])


def _column(write: Callable[[Any], bytes], values: Sequence[Any]) -> list[bytes]:
    return [_NULL if value is None else write(value) for value in values]
