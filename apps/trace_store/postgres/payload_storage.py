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
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import msgspec
import zstandard
from django.conf import settings

from apps.core import object_storage
from apps.core.connections import raw_cursor, sql
from apps.core.json import Fragment, LazyFragment
from apps.trace_store.types import Payload, RunDetail, RunRow

log = logging.getLogger(__name__)

MAX_LOADED_BYTES = 33_554_432
"""JSON of the payloads that a page of runs holds at once, and one more payload."""
_PATH_MARKER = b"\x01"
_MAX_PATH_LENGTH = 300
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MIN_COMPRESSED_BYTES = 400
_LEVEL = 1
_local = threading.local()
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class CompressedPayload(bytes):
    """A payload in its stored form."""


def compress_payload(value: bytes) -> CompressedPayload:
    """Compress one payload."""
    return CompressedPayload(_compressor().compress(value))


def compress_payloads(values: Sequence[bytes]) -> list[bytes]:
    """Compress the large payloads in one call, which releases the interpreter lock once."""
    stored = list(values)
    large_indexes = [
        index
        for index, value in enumerate(values)
        if len(value) > _MIN_COMPRESSED_BYTES and not isinstance(value, CompressedPayload)
    ]
    if large_indexes:
        frames = _compressor().multi_compress_to_buffer([values[index] for index in large_indexes])
        for frame_number, index in enumerate(large_indexes):
            stored[index] = frames[frame_number].tobytes()
    return stored


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


def offload(
    workspace_id: UUID, run_id: UUID, payloads: Mapping[Payload, bytes]
) -> Mapping[Payload, bytes]:
    """Write large payloads to object storage; return the values for the row.

    Raises `Unavailable` if object storage rejects a payload; the run must not be stored then.
    """
    if all(len(value) <= settings.LARGE_PAYLOAD_BYTES for value in payloads.values()):
        return payloads
    return {
        name: _offload_if_large(workspace_id, run_id, value) for name, value in payloads.items()
    }


def _offload_if_large(workspace_id: UUID, run_id: UUID, value: bytes) -> bytes:
    if isinstance(value, CompressedPayload) or len(value) <= settings.LARGE_PAYLOAD_BYTES:
        return value
    compressed = compress_payload(value)
    if len(compressed) <= settings.LARGE_PAYLOAD_BYTES:
        return compressed
    path = f"payloads/{workspace_id}/{run_id}/{hashlib.sha256(value).hexdigest()}"
    object_storage.put(path, compressed)
    return CompressedPayload(_PATH_MARKER + path.encode())


def load_payload(stored: bytes) -> bytes:
    """Return the stored value, or the object that it refers to."""
    if not stored.startswith(_PATH_MARKER):
        return stored
    path = stored[1:].decode()
    try:
        return object_storage.get(path)
    except FileNotFoundError:
        log.exception("payload %s is missing from object storage", path)
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


def with_payloads(
    rows: Sequence[RunRow], payloads: Collection[Payload], *, lazily: bool = False
) -> list[RunDetail]:
    """Return the runs, in their order, with the requested payloads.

    With `lazily`, payloads beyond `MAX_LOADED_BYTES` in sum are loaded when they are encoded.
    """
    if not rows or not payloads:
        return [RunDetail(row=row, payloads={}) for row in rows]
    requested = sorted(payloads)
    most_bytes = len(rows) * len(requested) * settings.LARGE_PAYLOAD_BYTES
    columns = (
        _columns_up_to(MAX_LOADED_BYTES, requested)
        if lazily and most_bytes > MAX_LOADED_BYTES
        else ", ".join(f"p.{payload}" for payload in requested)
    )
    statement = (
        f"SELECT p.id, p.project_id, p.partition_time, {columns}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) WITH ORDINALITY AS k(id,"
        " project_id, partition_time, position)"
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
        payloads_by_key = {row[:3]: row[3:] for row in cursor.fetchall()}
    loader = _Loader(requested, MAX_LOADED_BYTES if lazily else None)
    return [
        RunDetail(
            row=row,
            payloads=loader.load(
                row, payloads_by_key.get((row.id, row.project_id, row.partition_time), ())
            ),
        )
        for row in rows
    ]


def _columns_up_to(max_bytes: int, payloads: Sequence[Payload]) -> str:
    """SQL of the payloads of the first runs, and of an empty text in place of the others.

    `octet_length` does not read out-of-line values, and an empty text is no stored value.
    """
    size = " + ".join(f"coalesce(octet_length(p.{payload}), 0)" for payload in payloads)
    total = f"sum({size}) OVER (ORDER BY k.position)"
    return ", ".join(
        f"CASE WHEN {total} <= {max_bytes} OR p.{payload} IS NULL THEN p.{payload}"
        f" ELSE ''::bytea END"
        for payload in payloads
    )


@dataclass(frozen=True, slots=True)
class _StoredPayload(LazyFragment):
    """A payload in its stored form; an empty one is still in its row."""

    row: RunRow
    payload: Payload
    stored: bytes

    def load(self) -> bytes:
        if not self.stored:
            loaded = with_payloads([self.row], [self.payload])[0].payloads.get(self.payload)
            return b"null" if loaded is None else cast("Fragment", loaded)
        text = decompress_payload(load_payload(self.stored))
        if self.payload is Payload.EXTRA:
            return _join_extra(self.row, text)[Payload.EXTRA]
        return text


class _Loader:
    """Decompresses payloads until they have `max_bytes`."""

    def __init__(self, payloads: Sequence[Payload], max_bytes: int | None) -> None:
        self._payloads, self._bytes_left = payloads, max_bytes

    def load(
        self, row: RunRow, stored: Sequence[bytes | None]
    ) -> dict[Payload, Fragment | LazyFragment]:
        result: dict[Payload, Fragment | LazyFragment] = {
            payload: self._load(row, payload, value)
            for payload, value in zip(self._payloads, stored, strict=False)
            if value is not None
        }
        if Payload.EXTRA in self._payloads:
            extra = result.get(Payload.EXTRA)
            if not isinstance(extra, LazyFragment):
                result |= _join_extra(row, extra)
        return result

    def _load(self, row: RunRow, payload: Payload, stored: bytes) -> Fragment | LazyFragment:
        if not stored or (self._bytes_left is not None and self._bytes_left <= 0):
            return _StoredPayload(row, payload, bytes(stored))
        text = decompress_payload(load_payload(stored))
        if self._bytes_left is not None:
            self._bytes_left -= len(text)
        return text


def _join_extra(row: RunRow, stored: Fragment | None) -> dict[Payload, Fragment]:
    """Return `extra` with its metadata, which is stored separately."""
    metadata = row.metadata_json
    if metadata == b"{}":
        return {} if stored is None else {Payload.EXTRA: stored}
    fields = b"{}" if stored is None else stored.strip()
    if not fields.startswith(b"{"):  # one request sent a value that is not an object
        return {Payload.EXTRA: Fragment(b'{"extra":%b,"metadata":%b}' % (fields, metadata))}
    if b'"metadata"' in fields or b"\\u" in fields:
        fields = _without_metadata(fields)
    members = fields[1:-1].strip()
    separator = b"," if members else b""
    return {Payload.EXTRA: Fragment(b'{"metadata":%b%b%b}' % (metadata, separator, members))}


def _without_metadata(fields: bytes) -> bytes:
    """Remove `metadata` from `extra`: it was no object when sent, and a later one is stored."""
    members = _object_decoder.decode(fields)
    members.pop("metadata", None)
    return msgspec.json.encode(members)
