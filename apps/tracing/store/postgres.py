"""The store of runs in PostgreSQL: see docs/adr/0005-trace-store.md for its tables."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.json import Fragment, loads
from apps.tracing.store import cursors, stats
from apps.tracing.store.locating import locate, probable_days
from apps.tracing.store.packing import unpack
from apps.tracing.store.protocol import ALL_PAYLOADS, NO_PAYLOADS
from apps.tracing.store.raw import raw_cursor, sql
from apps.tracing.store.totals import Source, Totals
from apps.tracing.store.types import (
    Attachment,
    Page,
    Payload,
    ProjectStats,
    RunDetail,
    RunQuery,
    RunRow,
    Usage,
)

_USAGE = (
    "prompt_tokens, completion_tokens, total_tokens, prompt_cost, completion_cost, total_cost,"
    " usage_details::text"
)
_COLUMNS = (
    "workspace_id, project_id, id, trace_id, parent_run_id, dotted_order, placed_at, name,"
    " run_type, start_time, end_time, first_token_time, received_at, error_preview,"
    " inputs_preview, outputs_preview, tags, metadata::text, thread_key, model,"
    f" reference_example_id, attachments::text, {_USAGE}"
)
# What a client says its start is may differ from its dotted order, by less than this.
_SKEW = timedelta(days=1)

Conditions = list[tuple[str, list[Any]]]


class PostgresRunStore:
    """See `RunStore` for what each method promises."""

    def existing(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        return set(locate(workspace_id, run_ids))

    def get(
        self,
        workspace_id: UUID,
        run_id: UUID,
        *,
        project_id: UUID | None = None,
        payloads: Collection[Payload] = ALL_PAYLOADS,
    ) -> RunDetail | None:
        conditions: Conditions = [("workspace_id = %s", [workspace_id]), ("id = %s", [run_id])]
        if project_id is not None:
            conditions.append(("project_id = %s", [project_id]))
        near = probable_days([run_id])
        attempts = [[*conditions, ("placed_at BETWEEN %s AND %s", [*near])]] if near else []
        for attempt in [*attempts, conditions]:
            rows = _select(attempt, "ORDER BY received_at DESC LIMIT 1")
            if rows:
                return _with_payloads(_with_totals(rows), payloads)[0]
        return None

    def trace(
        self, workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None = None
    ) -> Sequence[RunRow]:
        conditions: Conditions = [
            ("workspace_id = %s", [workspace_id]),
            ("trace_id = %s", [trace_id]),
        ]
        if project_id is not None:
            conditions.append(("project_id = %s", [project_id]))
        return _totalled(_select(conditions, "ORDER BY dotted_order"))

    def query(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        limit: int,
        cursor: str | None = None,
        payloads: Collection[Payload] = NO_PAYLOADS,
    ) -> Page:
        conditions = [("workspace_id = %s", [workspace_id]), *_conditions(query)]
        if cursor is not None:
            placed_at, run_id = cursors.decode(cursor)
            side = ">" if query.oldest_first else "<"
            # The second condition is implied; it is the one that partitions are pruned by.
            conditions.append((f"(placed_at, id) {side} (%s, %s)", [placed_at, run_id]))
            conditions.append((f"placed_at {side}= %s", [placed_at]))
        direction = "ASC" if query.oldest_first else "DESC"
        rows = _select(
            conditions, f"ORDER BY placed_at {direction}, id {direction} LIMIT {limit + 1:d}"
        )
        more = len(rows) > limit
        rows = rows[:limit]
        last = cursors.encode(rows[-1].placed_at, rows[-1].id) if more else None
        return Page(_with_payloads(_with_totals(rows), payloads), last)

    def figures(self, workspace_id: UUID, question: stats.Question) -> stats.Answer:
        return stats.answer(self, workspace_id, question)

    def project_stats(
        self, workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
    ) -> Mapping[UUID, ProjectStats]:
        found = dict.fromkeys(project_ids, ProjectStats())
        values: list[Any] = [workspace_id, list(project_ids)]
        limited = ""
        if since is not None:
            limited = "AND hour >= date_trunc('hour', %s::timestamptz, 'UTC')"
            values.append(since)
        statement = (
            "SELECT project_id, sum(runs - removed_runs)::bigint,"
            " sum(traces - removed_traces)::bigint, max(last_start_time)"
            " FROM tracing_ingestcount WHERE workspace_id = %s AND project_id = ANY(%s)"
            f" {limited} GROUP BY project_id"
        )
        with raw_cursor() as cursor:
            cursor.execute(sql(statement), values)
            found |= {row[0]: ProjectStats(*row[1:]) for row in cursor}
        return found


def _conditions(query: RunQuery) -> Iterable[tuple[str, list[Any]]]:
    if query.project_ids is not None:
        # One project as an equation: only so does the index give the order.
        if len(query.project_ids) == 1:
            yield "project_id = %s", [query.project_ids[0]]
        else:
            yield "project_id = ANY(%s)", [list(query.project_ids)]
    if query.run_ids is not None:
        yield "id = ANY(%s)", [list(query.run_ids)]
    if query.trace_id is not None:
        yield "trace_id = %s", [query.trace_id]
    if query.parent_run_id is not None:
        yield "parent_run_id = %s", [query.parent_run_id]
    if query.reference_example_ids is not None:
        yield "reference_example_id = ANY(%s)", [list(query.reference_example_ids)]
    if query.run_type is not None:
        yield "coalesce(run_type, 'chain') = %s", [query.run_type]
    if query.is_root is not None:
        yield f"parent_run_id IS {'' if query.is_root else 'NOT '}NULL", []
    if query.has_error is not None:
        yield f"error_preview IS {'NOT ' if query.has_error else ''}NULL", []
    if query.started_from is not None:
        yield "coalesce(start_time, placed_at) >= %s", [query.started_from]
        yield "placed_at >= %s", [query.started_from - _SKEW]
    if query.started_until is not None:
        yield "coalesce(start_time, placed_at) <= %s", [query.started_until]
        yield "placed_at <= %s", [query.started_until + _SKEW]


def _select(conditions: Conditions, ending: str) -> list[RunRow]:
    where = " AND ".join(condition for condition, _ in conditions)
    values = [value for _, given in conditions for value in given]
    with raw_cursor() as cursor:
        cursor.execute(sql(f"SELECT {_COLUMNS} FROM tracing_run WHERE {where} {ending}"), values)
        return [_row(row) for row in cursor]


def _row(row: Sequence[Any]) -> RunRow:
    placed_at, name, run_type, start_time = row[6:10]
    return RunRow(
        workspace_id=row[0],
        project_id=row[1],
        id=row[2],
        trace_id=row[3],
        parent_run_id=row[4],
        dotted_order=row[5],
        placed_at=placed_at,
        # Until its beginning comes, an update stands for the run.
        name=name or "",
        run_type=run_type or "chain",
        start_time=start_time or placed_at,
        end_time=row[10],
        first_token_time=row[11],
        received_at=row[12],
        error_preview=row[13],
        inputs_preview=row[14],
        outputs_preview=row[15],
        tags=row[16] or [],
        metadata_json=Fragment((row[17] or "{}").encode()),
        thread_key=row[18],
        model=row[19],
        reference_example_id=row[20],
        attachments=_attachments(row[21]),
        usage=_usage(row[22:]),
    )


def _attachments(text: str | None) -> list[Attachment]:
    return [Attachment(name=name, **one) for name, one in loads(text or "{}").items()]


def _usage(row: Sequence[Any]) -> Usage:
    return Usage(
        prompt_tokens=row[0],
        completion_tokens=row[1],
        total_tokens=row[2],
        prompt_cost=row[3],
        completion_cost=row[4],
        total_cost=row[5],
        details=None if row[6] is None else loads(row[6]),
    )


def _totalled(trace: list[RunRow]) -> list[RunRow]:
    """The runs of a whole trace with their sums."""
    said = [row for row in trace if row.usage.is_known]
    totals = Totals(
        [
            Source(_tree_key(row.project_id, row.dotted_order), row.is_model_call, row.usage)
            for row in said
        ]
    )
    return [_summed(row, totals) for row in trace]


def _with_totals(rows: list[RunRow]) -> list[RunRow]:
    """Some runs with their sums, which takes a look at the other runs of their traces."""
    others = [row for row in rows if not row.is_model_call]
    if not others:
        return rows
    statement = (
        f"SELECT project_id, dotted_order, run_type, {_USAGE} FROM tracing_run"
        " WHERE workspace_id = %s AND trace_id = ANY(%s) AND placed_at >= %s"
        " AND (total_tokens IS NOT NULL OR total_cost IS NOT NULL)"
    )
    values = [
        others[0].workspace_id,
        list({row.trace_id for row in others}),
        min(row.placed_at for row in others) - _SKEW,
    ]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        totals = Totals(
            [Source(_tree_key(row[0], row[1]), row[2] == "llm", _usage(row[3:])) for row in cursor]
        )
    return [_summed(row, totals) for row in rows]


def _tree_key(project_id: UUID, dotted_order: str) -> str:
    """Two projects may hold the same trace."""
    return f"{project_id}:{dotted_order}"


def _summed(row: RunRow, totals: Totals) -> RunRow:
    below = None if row.is_model_call else totals.below(_tree_key(row.project_id, row.dotted_order))
    return row if below is None else replace(row, usage=below)


def _with_payloads(rows: list[RunRow], payloads: Collection[Payload]) -> list[RunDetail]:
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
        payload: unpack(value)
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
