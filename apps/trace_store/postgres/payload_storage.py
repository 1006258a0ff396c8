"""Stores payloads: small JSON as it is, larger JSON as a zstd frame, very large in object storage.

JSON begins neither with the first byte of a zstd frame nor with the marker of an object path, so no
flag is needed.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import zstandard
from django.conf import settings

from apps.core import objects
from apps.core.json import Fragment
from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.types import Payload, RunDetail, RunRow

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MIN_COMPRESSED_BYTES = 400
_LEVEL = 1
_local = threading.local()


class CompressedPayload(bytes):
    """A payload in its stored form."""


def compress_payload(value: bytes) -> CompressedPayload:
    """Compress one payload."""
    return CompressedPayload(_compressor().compress(value))


def compress_payloads(values: Sequence[bytes]) -> list[bytes]:
    """Compress the large payloads in one call, which releases the interpreter lock once."""
    packed = list(values)
    long = [
        at
        for at, value in enumerate(values)
        if len(value) > _MIN_COMPRESSED_BYTES and not isinstance(value, CompressedPayload)
    ]
    if long:
        frames = _compressor().multi_compress_to_buffer([values[at] for at in long])
        for place, at in enumerate(long):
            packed[at] = frames[place].tobytes()
    return packed


def decompress_payload(stored: bytes) -> Fragment:
    """The JSON that was sent, from a value of `load_payload`."""
    value = bytes(stored)
    if value.startswith(_ZSTD_MAGIC):
        value = zstandard.decompress(value)
    return Fragment(value)


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


log = logging.getLogger(__name__)
_PATH_MARKER = b"\x01"
_MAX_PATH_LENGTH = 300


def offload(
    workspace_id: UUID, run_id: UUID, payloads: Mapping[Payload, bytes]
) -> dict[Payload, bytes]:
    """Write large payloads to object storage; return the values for the row.

    Raises `Unavailable` if object storage rejects one; the run must not be stored then.
    """
    return {
        name: _offload_if_large(workspace_id, run_id, value) for name, value in payloads.items()
    }


def _offload_if_large(workspace_id: UUID, run_id: UUID, value: bytes) -> bytes:
    if isinstance(value, CompressedPayload) or len(value) <= settings.LARGE_PAYLOAD_BYTES:
        return value
    packed = compress_payload(value)
    if len(packed) <= settings.LARGE_PAYLOAD_BYTES:
        return packed
    path = f"payloads/{workspace_id}/{run_id}/{hashlib.sha256(value).hexdigest()}"
    objects.put(path, packed)
    return CompressedPayload(_PATH_MARKER + path.encode())


def load_payload(stored: bytes) -> bytes:
    """The stored value, or the object that its path names."""
    if not stored.startswith(_PATH_MARKER):
        return stored
    path = stored[1:].decode()
    try:
        return objects.get(path)
    except FileNotFoundError:
        log.exception("a payload is not in object storage any more: %s", path)
        return b"null"


def offloaded_paths_sql(table: str) -> str:
    """SQL for the array of object paths in a payload row; `table` is its alias."""
    # `octet_length` does not read out-of-line values.
    cases = (
        f"CASE WHEN octet_length({table}.{name}) BETWEEN 2 AND {_MAX_PATH_LENGTH}"
        f" AND get_byte({table}.{name}, 0) = {_PATH_MARKER[0]}"
        f" THEN convert_from(substr({table}.{name}, 2), 'UTF8') END"
        for name in Payload
    )
    return f"array_remove(ARRAY[{', '.join(cases)}], NULL)"


def with_payloads(rows: list[RunRow], payloads: Collection[Payload]) -> list[RunDetail]:
    if not rows or not payloads:
        return [RunDetail(row=row, payloads={}) for row in rows]
    wanted = sorted(payloads)
    names = ", ".join(f"p.{payload}" for payload in wanted)
    statement = (
        f"SELECT p.id, p.project_id, p.partition_time, {names}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id,"
        " partition_time)"
        " JOIN trace_store_run_payload p ON p.workspace_id = %s AND p.id = k.id"
        " AND p.project_id = k.project_id AND p.partition_time = k.partition_time"
        " AND p.partition_time BETWEEN %s AND %s"
    )
    times = [row.partition_time for row in rows]
    values = [
        [row.id for row in rows],
        [row.project_id for row in rows],
        times,
        rows[0].workspace_id,
        min(times),
        max(times),
    ]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        result = {tuple(row[:3]): row[3:] for row in cursor}
    return [
        RunDetail(
            row=row,
            payloads=_decompress_row(
                row, wanted, result.get((row.id, row.project_id, row.partition_time), ())
            ),
        )
        for row in rows
    ]


def _decompress_row(
    row: RunRow, wanted: Sequence[Payload], stored: Sequence[bytes | None]
) -> dict[Payload, Fragment]:
    result = {
        payload: decompress_payload(load_payload(value))
        for payload, value in zip(wanted, stored, strict=False)
        if value is not None
    }
    if Payload.EXTRA in wanted:
        result |= _extra(row, result.get(Payload.EXTRA))
    return result


def _extra(row: RunRow, rest: Fragment | None) -> dict[Payload, Fragment]:
    """`extra` with its metadata, which is stored separately."""
    metadata = row.metadata_json
    if metadata == b"{}":
        return {} if rest is None else {Payload.EXTRA: rest}
    if rest is None:
        return {Payload.EXTRA: Fragment(b'{"metadata":%b}' % metadata)}
    if not rest.startswith(b"{"):  # a client's `extra` that is no object, and later one that is
        return {Payload.EXTRA: Fragment(b'{"extra":%b,"metadata":%b}' % (rest, metadata))}
    return {Payload.EXTRA: Fragment(b'{"metadata":%b,%b' % (metadata, rest[1:]))}
