"""The large parts of runs, read for a page of them at once."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Sequence

from apps.core.json import Fragment
from apps.trace_store.store.large_payloads import fetched
from apps.trace_store.store.packing import unpack
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.types import Payload, RunDetail, RunRow


def with_payloads(rows: list[RunRow], payloads: Collection[Payload]) -> list[RunDetail]:
    if not rows or not payloads:
        return [RunDetail(row=row, payloads={}) for row in rows]
    wanted = sorted(payloads)
    names = ", ".join(f"p.{payload}" for payload in wanted)
    statement = (
        f"SELECT p.id, p.project_id, p.placed_at, {names}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, placed_at)"
        " JOIN tracing_runpayload p ON p.workspace_id = %s AND p.id = k.id"
        " AND p.project_id = k.project_id AND p.placed_at = k.placed_at"
        " AND p.placed_at BETWEEN %s AND %s"
    )
    times = [row.placed_at for row in rows]
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
        found = {tuple(row[:3]): row[3:] for row in cursor}
    return [
        RunDetail(
            row=row,
            payloads=_unpacked(row, wanted, found.get((row.id, row.project_id, row.placed_at), ())),
        )
        for row in rows
    ]


def _unpacked(
    row: RunRow, wanted: Sequence[Payload], stored: Sequence[bytes | None]
) -> dict[Payload, Fragment]:
    found = {
        payload: unpack(fetched(value))
        for payload, value in zip(wanted, stored, strict=False)
        if value is not None
    }
    if Payload.EXTRA in wanted:
        found |= _extra(row, found.get(Payload.EXTRA))
    return found


def _extra(row: RunRow, rest: Fragment | None) -> dict[Payload, Fragment]:
    """`extra` with its metadata back, which is stored apart."""
    metadata = row.metadata_json
    if metadata == b"{}":
        return {} if rest is None else {Payload.EXTRA: rest}
    if rest is None:
        return {Payload.EXTRA: Fragment(b'{"metadata":%b}' % metadata)}
    if not rest.startswith(b"{"):  # a client's `extra` that is no object, and later one that is
        return {Payload.EXTRA: Fragment(b'{"extra":%b,"metadata":%b}' % (rest, metadata))}
    return {Payload.EXTRA: Fragment(b'{"metadata":%b,%b' % (metadata, rest[1:]))}
